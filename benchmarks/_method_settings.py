"""The settings of benchmarks/methods.py: flags of every loss, miner, sampler and trainer, of memories and backbones.

Every run has the flags `COMMON`; a setting adds its own.
"""

COMMON = (
    "--dataset glyphs --arch conv4_normalize --embed_dim 64 --bs 112 --samples_per_class 4 --data_sampler "
    "class_balanced --lr 0.001 --decay 0 --n_epochs 3 --save_interval 3 --no_train_metrics --evaluation_metrics "
    "e_recall@1 map_r --kernels 1 --no_records --plot_every 0"
)
# for the losses that are meant for embeddings of any length
RAW = "--arch conv4"
# for those whose embeddings differ in length by intent, and are compared by cosines
BY_COSINES = f"{RAW} --evaluation_metrics c_recall@1 c_map_r --storage_metrics c_recall@1"
WITHOUT_FLAGS = (
    "angle circle contextual cosent fastap gpw histogram intrapair_variance lifted_original multisimilarity ntxent "
    "pnp rankedlist recallatk roadmap smoothap snr_contrastive supcon threshold_consistent tupletmargin"
)
METHODS = {
    **dict.fromkeys(WITHOUT_FLAGS.split(), ""),
    "adaface": f"--loss_adaface_lr 0.01 --loss_adaface_scale 16 {BY_COSINES}",
    "angular": f"--batch_mining npair {RAW}",
    "arcface": "--loss_arcface_lr 0.001",
    # with a classifier, as published: alone it collapses all embeddings
    "center": f"--trainer classifier {RAW}",
    "circle_softmax": "--loss_circle_softmax_lr 0.01",
    "contrastive": "--batch_mining distance",
    "cosface": "--loss_cosface_lr 0.01 --loss_cosface_scale 16",
    "curricularface": "--loss_curricularface_lr 0.01 --loss_curricularface_scale 16",
    "dynamic_softmargin": "--batch_mining batchhard",
    "happier": "--loss_happier_lr 0.01",
    "hier": f"--loss_proxyanchor_lrmulti 1 {RAW} --eval_space hyperbolic",
    "hist": f"--neck layernorm --loss_hist_lr 0.1 {RAW}",
    "hyperbolic": f"{RAW} --eval_space hyperbolic",
    "instance": "--loss_instance_lr 0.01",
    "largemargin_softmax": f"--loss_largemargin_softmax_lr 0.01 {RAW}",
    "lifted": f"--batch_mining lifted {RAW}",
    "magface": f"--loss_magface_lr 0.01 --loss_magface_scale 16 {BY_COSINES}",
    "manifold": "--loss_manifold_lr 0.01",
    "margin": "--batch_mining distance --loss_margin_beta 0.6 --loss_margin_beta_lr 0.001",
    "meanfield": "--loss_meanfield_lrmulti 10",
    "nca": "--loss_nca_scale 9",
    "npair": f"--batch_mining npair {RAW}",
    "p2sgrad": "--loss_p2sgrad_lr 0.01",
    "pml": "--loss_pml_class CircleLoss --loss_pml_kwargs m=0.4 gamma=80",
    "proxyanchor": "--loss_proxyanchor_lrmulti 1",
    "proxynca": "--loss_proxynca_lrmulti 10",
    "proxynca_pp": "--loss_proxynca_pp_lrmulti 10",
    "quadruplet": "--batch_mining distance",
    "snr": "--batch_mining distance",
    "softmax": "--loss_softmax_lr 0.01",
    "softtriplet": "--loss_softtriplet_lrmulti 10",
    "sphereface": f"--loss_sphereface_lr 0.01 {RAW}",
    "subcenter_arcface": "--loss_subcenter_arcface_lr 0.001 --loss_subcenter_arcface_feature_scale 16",
    "triplet": "--batch_mining distance",
    "vicreg": f"--samples_per_class 2 {RAW}",
}
MARGIN = f"--loss margin {METHODS['margin']}"
# 112 embeddings per batch and 35 batches per epoch, as in the other runs
TWO_VIEWS = "--bs 56 --iterations_per_epoch 35"
# name -> flags shared with metric_only, the trainer's own flags, further embeddings to measure
TRAINERS = {
    "classifier": ("--loss multisimilarity", "--classifier_lr 0.01", []),
    "s2sd": ("--loss multisimilarity", "--s2sd_dims 128 256 512", []),
    "intrabatch": ("--loss multisimilarity", f"{RAW} --intrabatch_heads 4", []),
    "unsupervised": ("--loss ntxent --loss_ntxent_temperature 0.1", TWO_VIEWS, []),
    "cascaded": ("--loss contrastive --batch_mining distance --embed_dim 192", "", ["level_1", "level_2", "level_3"]),
    "adversarial": (MARGIN, "--adversarial_triplets_per_anchor 10", []),
    "diva": (
        MARGIN,
        TWO_VIEWS,
        ["shared", "intra", "selfsimilarity", "Combined_discriminative_shared_intra_selfsimilarity-1-1-1-1"],
    ),
}
PAIRS = "--loss contrastive --batch_mining"
TRIPLETS = "--loss triplet --batch_mining"
# name -> its loss and flags; lifted and npair are run with their losses
MINERS = {
    "none": f"{PAIRS} none --loss_contrastive_reduction nonzero",
    "hdc": f"{PAIRS} hdc",
    "multisimilarity": f"{PAIRS} multisimilarity",
    "pairmargin": f"{PAIRS} pairmargin",
    "uniform_histogram": f"{PAIRS} uniform_histogram",
    "random": f"{TRIPLETS} random",
    "semihard": f"{TRIPLETS} semihard",
    "softhard": f"{TRIPLETS} softhard",
    "batchhard": f"{TRIPLETS} batchhard",
    "easy_hard": f"{TRIPLETS} easy_hard",
    "tripletmargin": f"{TRIPLETS} tripletmargin",
    "angular": f"{TRIPLETS} angular",
    "all": f"{TRIPLETS} all",
    "parametric": f"{TRIPLETS} parametric",
    "distance": f"{TRIPLETS} distance",
    "rho_distance": f"{TRIPLETS} rho_distance",
    "random_distance": f"{TRIPLETS} random_distance",
    "intra_random": f"{TRIPLETS} intra_random",
    "packaged": f"{TRIPLETS} packaged --data_sampler fixed_triplets --bs 111 --iterations_per_epoch 35",
    "pml": f"{TRIPLETS} pml --miner_pml_class TripletMarginMiner",
}
OF_SAMPLERS = "--loss multisimilarity --data_sampler"
# name -> its loss and flags
SAMPLERS = {
    "class_balanced": f"{OF_SAMPLERS} class_balanced",
    "class_groups": f"{OF_SAMPLERS} class_groups",
    "class_random": f"{OF_SAMPLERS} class_random",
    "full_random": f"{OF_SAMPLERS} full_random",
    "shuffle": f"{OF_SAMPLERS} shuffle",
    "hierarchical": f"{OF_SAMPLERS} hierarchical",
    # a domain: letters of one kind, or digits
    "domain_balanced": f"{OF_SAMPLERS} domain_balanced",
    "domain_round_robin": f"{OF_SAMPLERS} domain_round_robin",
    "domain_size": f"{OF_SAMPLERS} domain_size",
    "d2_coreset": f"{OF_SAMPLERS} d2_coreset",
    "greedy_coreset": f"{OF_SAMPLERS} greedy_coreset",
    "disthist_batchmatch": f"{OF_SAMPLERS} disthist_batchmatch",
    "fid_batchmatch": f"{OF_SAMPLERS} fid_batchmatch",
    "fixed_triplets": MINERS["packaged"],
    "hard_triplets": f"{TRIPLETS} packaged --data_sampler hard_triplets --bs 111 --iterations_per_epoch 35",
}
# as many steps per epoch as with batches of 112
SMALL_BATCHES = "--bs 28 --iterations_per_epoch 35"
OF_MEMORY = {"multisimilarity": "", "ntxent": "--loss_ntxent_temperature 0.1"}
# start of the memory -> flags of both runs, the memory's flags, loss -> its flags
MEMORIES = {
    "early": (
        SMALL_BATCHES,
        "--memory_size 512 --memory_start 35",
        {"contrastive": "--batch_mining distance", **OF_MEMORY, "margin": METHODS["margin"]},
    ),
    # the memory starts with a tenth of the rate, when the weights change slowly
    "settled": (
        f"{SMALL_BATCHES} --n_epochs 9 --save_interval 9 --scheduler step --tau 5 --gamma 0.1",
        "--memory_size 1024 --memory_start 175",
        {"contrastive": "--batch_mining none --loss_contrastive_reduction nonzero", **OF_MEMORY},
    ),
}
# name -> its arch, its own flags, those of its cascade; all with random weights and 192 dimensions
BACKBONES = {
    "conv4": ("conv4", "--embed_dim 192", "--trainer cascaded"),
    # 48 x 48 pixels are 9 patches of 16
    "vit_tiny": (
        "timm:vit_tiny_patch16_224",
        "--embed_dim 192 --not_pretrained --crop_size 48 --lr 0.0003",
        "--trainer cascaded --cascade_stages blocks.3 blocks.7 blocks.11",
    ),
}
