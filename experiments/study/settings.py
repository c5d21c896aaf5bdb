"""What the studies compare: methods with their flags, data sets, seeds, splits and domains.

experiments/study/protocol.py writes the scripts of runs from these settings.
"""

from typing import NamedTuple


class Method(NamedTuple):
    """A loss with its published hyperparameters.

    `mined`: it has a miner of triplets. `class_rate`: flag of its class vectors' learning rate.
    """

    name: str
    flags: str
    mined: bool = False
    class_rate: str | None = None


METHODS = (
    Method("Contrastive", "--loss contrastive", mined=True),
    Method("Triplet", "--loss triplet", mined=True),
    Method("Margin", "--loss margin --loss_margin_beta 0.6", mined=True),
    Method("Quadruplet", "--loss quadruplet", mined=True),
    # 0 with both miners: without the flag the loss does this only with distance
    Method("SNR", "--loss snr --loss_snr_reg_lambda 0", mined=True),
    Method("MS", "--loss multisimilarity"),
    Method("Softmax", "--loss softmax", class_rate="--loss_softmax_lr"),
    Method("ArcFace", "--loss arcface", class_rate="--loss_arcface_lr"),
    # the rate of its proxies is already a multiple of --lr
    Method("ProxyAnchor", "--loss proxyanchor"),
)
MINED = tuple(method for method in METHODS if method.mined)
# class vectors' rate, in multiples of --lr: the published ratio of ArcFace, 0.0005 to 0.00001
CLASS_RATE = 50
# probabilities of rho_distance that the search tries
CPS = ("0.1", "0.2", "0.4")
PILOT = ("Margin", "MS")
PILOT_SEEDS = (10, 11, 12)
SEARCH_SEED = 9
SEEDS = (0, 1, 2, 3, 4)
SPLIT_METHODS = ("Contrastive", "Triplet", "Margin", "MS", "ArcFace", "ProxyAnchor")
SPLITS = range(6)
SPLIT_SEEDS = range(3)
# as FastRetri trains (configs/fastretri_cub200.yaml), in the study's batches, width and rates
CLASSIFIER = Method(
    "Classifier",
    "--arch timm:tf_efficientnet_lite0_frozen --pool gem --neck bn --trainer classifier --classifier_no_bias "
    "--classifier_start normal --classifier_smoothing 0.1 --classifier_smoothing_over others --loss contrastive "
    "--batch_mining distance --loss_weights metric_loss=0",
    class_rate="--classifier_lr",
)
# domain -> its name in groups
DOMAINS = {"emoji_1008": "Emoji", "glyphs": "Glyphs", "food": "Food", "stamps": "Stamps"}
UNION_SEEDS = range(3)
# one classifier for all classes, or one per domain
UNIVERSAL = {"Joint": "", "Separate": " --separate_classifiers"}
# of 60 batches: each domain gets the 60 batches of its specialist
UNION_EPOCHS = 4
# embeddings are not normalised, as in the papers of these methods
RAW = "--arch timm:tf_efficientnet_lite0_frozen"
# methods of 2021 to 2024, with their authors' constants (configs/*_r50_cub200.yaml), in the study's batches, width and
# rates
RECENT = (
    Method(
        "IBC",
        (
            f"{RAW} --trainer intrabatch --intrabatch_layers 1 --intrabatch_heads 2 --intrabatch_temperature 0.2 "
            "--intrabatch_smoothing 0.1 --loss contrastive --batch_mining distance"
        ),
        class_rate="--classifier_lr",
    ),
    Method(
        "HIST",
        (
            f"{RAW} --neck layernorm --loss hist --loss_hist_tau 32 --loss_hist_alpha 1.1 --loss_hist_hidden 512 "
            "--loss_hist_lr 0.1 --loss_hist_network_lrmulti 5"
        ),
    ),
    Method(
        "Contextual",
        "--loss contextual --loss_contextual_context_weight 0.95 --loss_contextual_contrastive_weight 0.05 "
        "--loss_contextual_mean_weight 0.1 --loss_contextual_mean 0.3 --loss_contextual_k 4 --loss_contextual_eps 0.04 "
        "--loss_contextual_projection 2048 --loss_contextual_projection_lrmulti 2",
    ),
    Method(
        "MeanField",
        (
            "--loss meanfield --loss_meanfield_alpha 0.01 --loss_meanfield_beta 80 --loss_meanfield_margin 0.8 "
            "--loss_meanfield_lrmulti 2000"
        ),
    ),
    Method(
        "AntiCo",
        (
            "--loss proxyanchor --loss_proxyanchor_alpha 64 --loss_proxyanchor_lrmulti 2000 --weight_regularizer "
            "anticollapse --loss_weights metric_loss=0.0035"
        ),
    ),
    Method(
        "Metrix",
        (
            "--loss multisimilarity --loss_multisimilarity_pos_weight 2 --loss_multisimilarity_neg_weight 40 "
            "--loss_multisimilarity_thresh 0.5 --metrix 0.4"
        ),
    ),
    Method(
        "Language",
        (
            "--loss multisimilarity --language_vectors $datapath/${emoji}_rows.npz --language_direction backward "
            "--language_shift 1 --language_T 1 --loss_weights language_loss=10"
        ),
    ),
)


class Data(NamedTuple):
    """A data set of the study: its name in groups and in tables, and its flags.

    `rates`: those that the search tries. `pilot_epochs`: epochs of its pilot. `split_epochs`: epochs of a run of
    Split_Runs.sh, and between two of its evaluations.
    """

    name: str
    flags: str
    rates: tuple[str, str, str]
    pilot_epochs: int
    split_epochs: tuple[int, int]

    def searched(self, kind: str) -> tuple[str, str, str]:
        """The values that the search tries for a rate or a probability of rho_distance.

        The file has the middle one until one is chosen.
        """
        return self.rates if kind == "rate" else CPS


DATA = (
    Data(
        "Emoji",
        (
            "--config study_emoji --dataset_folder_path $datapath/$emoji --weights "
            "$datapath/efficientnet_lite0.safetensors"
        ),
        ("0.00003", "0.0001", "0.0003"),
        80,
        (16, 2),
    ),
    Data("Glyphs", "--config study_glyphs", ("0.0003", "0.001", "0.003"), 30, (6, 1)),
)
