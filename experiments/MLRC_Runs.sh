#!/bin/sh
# 14 methods x 4 settings of the Reality Check
#
# One run a line. To train all of them, two at a time, without the finished ones:
#   python -m launch experiments/MLRC_Runs.sh --jobs 2 --gpus 0 1
# To train some of them and log to W&B too: python -m launch experiments/MLRC_Runs.sh --filter MLRC_CUB_ -- --log_online
#
# The 14 methods of "A Metric Learning Reality Check" (arXiv 2003.08505) in its 4 settings, with its best hyperparameters: in the
# full precision of its searches (docs/published/mlrc_search.csv), and where it did not search as printed (mlrc_hyperparameters.csv,
# whose other values are cut to about four digits). The protocol, all but the method, is in configs/mlrc_<setting>.yaml. Class
# weights, proxies and centres begin as there (--loss_vectors_start pml): their rates are worth what their lengths make of them.
# Translated: ArcFace's margin from degrees to radians; ProxyNCA, which includes the positive there, is proxynca_pp with
# scale = sqrt(softmax_scale); rates of proxies and centres in multiples of --lr; Multi Similarity keeps all pairs (margin inf), with its miner the margin is epsilon; Margin learns one beta,
# Margin / class one a class, both without decay. Contrastive, Triplet and Margin take every pair or triplet of the batch.
# SoftTriple has 10 centres a class, its authors' number; on SOP, where its regulariser was not searched, it has none.
# Classification losses: one image a class. Batches of 256 hold more images than there are classes: theirs draw the classes
# with replacement.
# A line trains 4 folds, <savename>/fold_0 to fold_3; <savename>/meta holds the mean of their test results (separated, 128
# dimensions) and the result of their joined embeddings (concatenated, 512 dimensions). Two machines that share
# ./Training_Results: python -m launch experiments/MLRC_Runs.sh -- --folds 0 1 on the one, -- --folds 2 3 on the other
# Reproductions: python -m launch experiments/MLRC_Runs.sh --seeds 0 1 2 3 4 5 6 7 8 9
datapath=${datapath:-./Datasets}  # parent folder of cub200, cars196 and online_products, without spaces

# ============================== cub200

# Contrastive: published MAP@R on validation 0.4368 (4 folds), on test about 0.2653
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_Contrastive --seed 0 --loss contrastive --batch_mining none --loss_contrastive_reduction nonzero --loss_contrastive_pos_margin -0.2 --loss_contrastive_neg_margin 0.384119

# Triplet: published MAP@R on validation 0.4244 (4 folds), on test about 0.2368
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_Triplet --seed 0 --loss triplet --batch_mining all --loss_triplet_distance euclidean --loss_triplet_reduction nonzero --loss_triplet_margin 0.0961007

# NTXent: published MAP@R on validation 0.4326 (4 folds), on test about 0.2510
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_NTXent --seed 0 --loss ntxent --loss_ntxent_temperature 0.00910329

# ProxyNCA: published MAP@R on validation 0.4298 (4 folds), on test about 0.2421
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_ProxyNCA --seed 0 --loss proxynca_pp --loss_proxynca_pp_lrmulti 6041.66 --loss_proxynca_pp_scale 3.739558798 --samples_per_class 1

# Margin: published MAP@R on validation 0.4184 (4 folds), on test about 0.2309
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_Margin --seed 0 --loss margin --batch_mining all --loss_margin_beta_shared --loss_margin_beta_lr 0.00131495 --loss_margin_margin 0.0878073 --loss_margin_beta 0.783866

# Margin / class: published MAP@R on validation 0.4278 (4 folds), on test about 0.2372
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_MarginClass --seed 0 --loss margin --batch_mining all --loss_margin_beta_lr 0.000265589 --loss_margin_margin 0.0779118 --loss_margin_beta 0.979673

# Normalized Softmax: published MAP@R on validation 0.4399 (4 folds), on test about 0.2524
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_NormalizedSoftmax --seed 0 --loss softmax --loss_softmax_lr 0.00446892 --loss_softmax_temperature 0.108747 --samples_per_class 1

# CosFace: published MAP@R on validation 0.4349 (4 folds), on test about 0.2669
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_CosFace --seed 0 --loss cosface --loss_cosface_lr 0.00253466 --loss_cosface_margin 0.618227 --loss_cosface_scale 100 --samples_per_class 1

# ArcFace: published MAP@R on validation 0.4476 (4 folds), on test about 0.2645
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_ArcFace --seed 0 --loss arcface --loss_arcface_lr 0.00513841 --loss_arcface_angular_margin 0.4053684267 --loss_arcface_feature_scale 100 --samples_per_class 1

# FastAP: published MAP@R on validation about 0.4235 (4 folds), on test about 0.2353
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_FastAP --seed 0 --loss fastap --loss_fastap_num_bins 17

# SNR Contrastive: published MAP@R on validation 0.4346 (4 folds), on test about 0.2576
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_SNRContrastive --seed 0 --loss snr_contrastive --batch_mining none --loss_snr_contrastive_pos_margin 0.326496 --loss_snr_contrastive_neg_margin 0.844647 --loss_snr_contrastive_regularizer_weight 0.13826

# Multi Similarity: published MAP@R on validation 0.4364 (4 folds), on test about 0.2469
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_MS --seed 0 --loss multisimilarity --loss_multisimilarity_margin inf --loss_multisimilarity_pos_weight 0.01 --loss_multisimilarity_neg_weight 50.6018 --loss_multisimilarity_thresh 0.562482

# Multi Similarity + Miner: published MAP@R on validation 0.4381 (4 folds), on test about 0.2653
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_MSMiner --seed 0 --loss multisimilarity --loss_multisimilarity_pos_weight 17.9701 --loss_multisimilarity_neg_weight 75.6628 --loss_multisimilarity_thresh 0.776257 --loss_multisimilarity_margin 0.394007

# SoftTriple: published MAP@R on validation 0.4411 (4 folds), on test about 0.2651
python main.py --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_SoftTriple --seed 0 --loss softtriplet --loss_softtriplet_n_centroids 10 --loss_softtriplet_lrmulti 53.76 --loss_softtriplet_lambda 78.0212 --loss_softtriplet_gamma 58.951 --loss_softtriplet_reg_weight 0.375479 --loss_softtriplet_margin_delta 0.430796 --samples_per_class 1

# ============================== cars196

# Contrastive: published MAP@R on validation 0.2208 (4 folds), on test about 0.2489
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_Contrastive --seed 0 --loss contrastive --batch_mining none --loss_contrastive_reduction nonzero --loss_contrastive_pos_margin 0.265234 --loss_contrastive_neg_margin 0.540941

# Triplet: published MAP@R on validation 0.2221 (4 folds), on test about 0.2302
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_Triplet --seed 0 --loss triplet --batch_mining all --loss_triplet_distance euclidean --loss_triplet_reduction nonzero --loss_triplet_margin 0.119027

# NTXent: published MAP@R on validation 0.2287 (4 folds), on test about 0.2440
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_NTXent --seed 0 --loss ntxent --loss_ntxent_temperature 0.0219261

# ProxyNCA: published MAP@R on validation 0.2265 (4 folds), on test about 0.2539
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_ProxyNCA --seed 0 --loss proxynca_pp --loss_proxynca_pp_lrmulti 4434.32 --loss_proxynca_pp_scale 2.823212709 --samples_per_class 1

# Margin: published MAP@R on validation 0.2143 (4 folds), on test about 0.2421
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_Margin --seed 0 --loss margin --batch_mining all --loss_margin_beta_shared --loss_margin_beta_lr 0.00011114 --loss_margin_margin 0.0781719 --loss_margin_beta 1.31644

# Margin / class: published MAP@R on validation 0.2179 (4 folds), on test about 0.2311
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_MarginClass --seed 0 --loss margin --batch_mining all --loss_margin_beta_lr 4.76794e-05 --loss_margin_margin 0.0776074 --loss_margin_beta 0.959887

# Normalized Softmax: published MAP@R on validation 0.2361 (4 folds), on test about 0.2600
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_NormalizedSoftmax --seed 0 --loss softmax --loss_softmax_lr 0.0110462 --loss_softmax_temperature 0.0886325 --samples_per_class 1

# CosFace: published MAP@R on validation 0.2232 (4 folds), on test about 0.2758
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_CosFace --seed 0 --loss cosface --loss_cosface_lr 0.00741299 --loss_cosface_margin 0.43244 --loss_cosface_scale 161.597 --samples_per_class 1

# ArcFace: published MAP@R on validation 0.2161 (4 folds), on test about 0.2723
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_ArcFace --seed 0 --loss arcface --loss_arcface_lr 7.39852e-06 --loss_arcface_angular_margin 0.3581817051 --loss_arcface_feature_scale 49.5017 --samples_per_class 1

# FastAP: published MAP@R on validation about 0.2203 (4 folds), on test about 0.2315
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_FastAP --seed 0 --loss fastap --loss_fastap_num_bins 27

# SNR Contrastive: published MAP@R on validation 0.2179 (4 folds), on test about 0.2504
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_SNRContrastive --seed 0 --loss snr_contrastive --batch_mining none --loss_snr_contrastive_pos_margin 0.167051 --loss_snr_contrastive_neg_margin 0.933756 --loss_snr_contrastive_regularizer_weight 2.37425e-16

# Multi Similarity: published MAP@R on validation 0.2325 (4 folds), on test about 0.2807
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_MS --seed 0 --loss multisimilarity --loss_multisimilarity_margin inf --loss_multisimilarity_pos_weight 14.3588 --loss_multisimilarity_neg_weight 75.8349 --loss_multisimilarity_thresh 0.661556

# Multi Similarity + Miner: published MAP@R on validation 0.2329 (4 folds), on test about 0.2701
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_MSMiner --seed 0 --loss multisimilarity --loss_multisimilarity_pos_weight 7.49787 --loss_multisimilarity_neg_weight 47.9932 --loss_multisimilarity_thresh 0.63148 --loss_multisimilarity_margin 0.725746

# SoftTriple: published MAP@R on validation 0.2279 (4 folds), on test about 0.2708
python main.py --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_SoftTriple --seed 0 --loss softtriplet --loss_softtriplet_n_centroids 10 --loss_softtriplet_lrmulti 140.341 --loss_softtriplet_lambda 17.6978 --loss_softtriplet_gamma 19.1873 --loss_softtriplet_reg_weight 0.0669818 --loss_softtriplet_margin_delta 0.358823 --samples_per_class 1

# ============================== online_products

# Contrastive: published MAP@R on validation 0.4107 (4 folds), on test about 0.4441
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_Contrastive --seed 0 --loss contrastive --batch_mining none --loss_contrastive_reduction nonzero --loss_contrastive_pos_margin 0.285026 --loss_contrastive_neg_margin 0.513015

# Triplet: published MAP@R on validation 0.3846 (4 folds), on test about 0.4337
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_Triplet --seed 0 --loss triplet --batch_mining all --loss_triplet_distance euclidean --loss_triplet_reduction nonzero --loss_triplet_margin 0.0451925

# NTXent: published MAP@R on validation 0.4062 (4 folds), on test about 0.4532
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_NTXent --seed 0 --loss ntxent --loss_ntxent_temperature 0.000240119

# ProxyNCA: published MAP@R on validation 0.4168 (4 folds), on test about 0.4723
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_ProxyNCA --seed 0 --loss proxynca_pp --loss_proxynca_pp_lrmulti 528.896 --loss_proxynca_pp_scale 3.276217331 --samples_per_class 1

# Margin: published MAP@R on validation 0.3725 (4 folds), on test about 0.4183
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_Margin --seed 0 --loss margin --batch_mining all --loss_margin_beta_shared --loss_margin_beta_lr 0.00182796 --loss_margin_margin 0.0915777 --loss_margin_beta 1.10723

# Margin / class: published MAP@R on validation 0.3909 (4 folds), on test about 0.4332
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_MarginClass --seed 0 --loss margin --batch_mining all --loss_margin_beta_lr 7.10754e-05 --loss_margin_margin 0.0518644 --loss_margin_beta 0.842459

# Normalized Softmax: published MAP@R on validation 0.4229 (4 folds), on test about 0.4714
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_NormalizedSoftmax --seed 0 --loss softmax --loss_softmax_lr 0.000546834 --loss_softmax_temperature 0.0630624 --samples_per_class 1

# CosFace: published MAP@R on validation 0.4132 (4 folds), on test about 0.4694
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_CosFace --seed 0 --loss cosface --loss_cosface_lr 0.00216067 --loss_cosface_margin 0.336413 --loss_cosface_scale 100 --samples_per_class 1

# ArcFace: published MAP@R on validation 0.4193 (4 folds), on test about 0.4741
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_ArcFace --seed 0 --loss arcface --loss_arcface_lr 0.00201866 --loss_arcface_angular_margin 0.3251880009 --loss_arcface_feature_scale 220.363 --samples_per_class 1

# FastAP: published MAP@R on validation about 0.3973 (4 folds), on test about 0.4358
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_FastAP --seed 0 --loss fastap --loss_fastap_num_bins 16

# SNR Contrastive: published MAP@R on validation 0.4099 (4 folds), on test about 0.4455
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_SNRContrastive --seed 0 --loss snr_contrastive --batch_mining none --loss_snr_contrastive_pos_margin 0.375935 --loss_snr_contrastive_neg_margin 1.08316 --loss_snr_contrastive_regularizer_weight 5.55907e-18

# Multi Similarity: published MAP@R on validation 0.4159 (4 folds), on test about 0.4580
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_MS --seed 0 --loss multisimilarity --loss_multisimilarity_margin inf --loss_multisimilarity_pos_weight 8.4925 --loss_multisimilarity_neg_weight 57.3886 --loss_multisimilarity_thresh 0.416736

# Multi Similarity + Miner: published MAP@R on validation 0.4202 (4 folds), on test about 0.4655
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_MSMiner --seed 0 --loss multisimilarity --loss_multisimilarity_pos_weight 15.9472 --loss_multisimilarity_neg_weight 156.617 --loss_multisimilarity_thresh 0.725038 --loss_multisimilarity_margin 0.348276

# SoftTriple: published MAP@R on validation 0.4166 (4 folds), on test about 0.4736
python main.py --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_SoftTriple --seed 0 --loss softtriplet --loss_softtriplet_n_centroids 10 --loss_softtriplet_lrmulti 86.8845 --loss_softtriplet_lambda 100 --loss_softtriplet_gamma 47.9087 --loss_softtriplet_reg_weight 0 --loss_softtriplet_margin_delta 0.314526 --samples_per_class 1

# ============================== cub200_bs256

# Contrastive: published MAP@R on validation 0.4332 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_Contrastive --seed 0 --loss contrastive --batch_mining none --loss_contrastive_reduction nonzero --loss_contrastive_pos_margin 0.222742 --loss_contrastive_neg_margin 0.769468

# Triplet: published MAP@R on validation 0.4264 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_Triplet --seed 0 --loss triplet --batch_mining all --loss_triplet_distance euclidean --loss_triplet_reduction nonzero --loss_triplet_margin 0.136836

# NTXent: published MAP@R on validation 0.4460 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_NTXent --seed 0 --loss ntxent --loss_ntxent_temperature 0.0415339

# ProxyNCA: published MAP@R on validation 0.4348 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_ProxyNCA --seed 0 --loss proxynca_pp --loss_proxynca_pp_lrmulti 216226 --loss_proxynca_pp_scale 3.167206971 --samples_per_class 1 --data_sampler class_random

# Margin: published MAP@R on validation 0.4205 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_Margin --seed 0 --loss margin --batch_mining all --loss_margin_beta_shared --loss_margin_beta_lr 1e-06 --loss_margin_margin 0.0674918 --loss_margin_beta 0.976232

# Margin / class: published MAP@R on validation 0.4253 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_MarginClass --seed 0 --loss margin --batch_mining all --loss_margin_beta_lr 0.0132827 --loss_margin_margin -0.02049 --loss_margin_beta 0.109784

# Normalized Softmax: published MAP@R on validation 0.4346 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_NormalizedSoftmax --seed 0 --loss softmax --loss_softmax_lr 0.072027 --loss_softmax_temperature 0.0707749 --samples_per_class 1 --data_sampler class_random

# CosFace: published MAP@R on validation 0.4412 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_CosFace --seed 0 --loss cosface --loss_cosface_lr 0.0039982 --loss_cosface_margin 0.414464 --loss_cosface_scale 88.2337 --samples_per_class 1 --data_sampler class_random

# ArcFace: published MAP@R on validation 0.4539 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_ArcFace --seed 0 --loss arcface --loss_arcface_lr 0.0395777 --loss_arcface_angular_margin 0.4040088153 --loss_arcface_feature_scale 78.8662 --samples_per_class 1 --data_sampler class_random

# FastAP: published MAP@R on validation 0.4470 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_FastAP --seed 0 --loss fastap --loss_fastap_num_bins 86

# SNR Contrastive: published MAP@R on validation 0.4394 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_SNRContrastive --seed 0 --loss snr_contrastive --batch_mining none --loss_snr_contrastive_pos_margin 0.118251 --loss_snr_contrastive_neg_margin 0.682215 --loss_snr_contrastive_regularizer_weight 0.474425

# Multi Similarity: published MAP@R on validation 0.4401 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_MS --seed 0 --loss multisimilarity --loss_multisimilarity_margin inf --loss_multisimilarity_pos_weight 0.01 --loss_multisimilarity_neg_weight 46.8524 --loss_multisimilarity_thresh 0.825306

# Multi Similarity + Miner: published MAP@R on validation 0.4429 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_MSMiner --seed 0 --loss multisimilarity --loss_multisimilarity_pos_weight 11.6375 --loss_multisimilarity_neg_weight 55.2015 --loss_multisimilarity_thresh 0.858105 --loss_multisimilarity_margin 0.423147

# SoftTriple: published MAP@R on validation 0.4397 (4 folds)
python main.py --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_SoftTriple --seed 0 --loss softtriplet --loss_softtriplet_n_centroids 10 --loss_softtriplet_lrmulti 106.374 --loss_softtriplet_lambda 72.1253 --loss_softtriplet_gamma 51.0794 --loss_softtriplet_reg_weight 0.443057 --loss_softtriplet_margin_delta 0.695904 --samples_per_class 1 --data_sampler class_random
