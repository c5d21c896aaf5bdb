#!/bin/sh
# The searches of "A Metric Learning Reality Check" (arXiv 2003.08505): 14 methods x 4 settings, 50 trials, 10 reproductions
#
# One search a line; a trial's value is the mean over 4 folds of the best
# MAP@R on validation. To run all of them, two at a time, without the finished ones:
#   python -m launch experiments/MLRC_Searches.sh --jobs 2 --gpus 0 1
# A line started again continues its search; started on several machines that share ./Training_Results, they work on one search.
# Bounds: docs/published/mlrc_search.csv, converted to this program's units (see MLRC_Runs.sh). FastAP with batches of 32 was not
# searched there; every number of bins between the bounds was tried. SoftTriple's regulariser was not searched on SOP. Above each
# search: the published best values.
datapath=${datapath:-./Datasets}  # parent folder of cub200, cars196 and online_products, without spaces

# ============================== cub200

# Contrastive: published best, in its own units: pos_margin -0.2, neg_margin 0.384119
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_Contrastive --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss contrastive --batch_mining none --loss_contrastive_reduction nonzero --loss_contrastive_pos_margin~BAYESIAN~ -0.2,2 --loss_contrastive_neg_margin~BAYESIAN~ -0.2,2

# Triplet: published best, in its own units: margin 0.0961007
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_Triplet --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss triplet --batch_mining all --loss_triplet_distance euclidean --loss_triplet_reduction nonzero --loss_triplet_margin~BAYESIAN~ -0.2,2

# NTXent: published best, in its own units: temperature 0.00910329
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_NTXent --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss ntxent --loss_ntxent_temperature~LOG_BAYESIAN~ 1e-4,1e2

# ProxyNCA: published best, in its own units: lr 0.00604166, softmax_scale 13.9843
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_ProxyNCA --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss proxynca_pp --loss_proxynca_pp_lrmulti~LOG_BAYESIAN~ 1,1000000 --loss_proxynca_pp_softmax_scale~BAYESIAN~ 0.01,100 --samples_per_class 1

# Margin: published best, in its own units: lr 0.00131495, margin 0.0878073, beta 0.783866
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_Margin --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss margin --batch_mining all --loss_margin_beta_shared --loss_margin_beta_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_margin_margin~BAYESIAN~ -0.2,2 --loss_margin_beta~BAYESIAN~ -0.2,2

# Margin / class: published best, in its own units: lr 0.000265589, margin 0.0779118, beta 0.979673
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_MarginClass --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss margin --batch_mining all --loss_margin_beta_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_margin_margin~BAYESIAN~ -0.2,2 --loss_margin_beta~BAYESIAN~ -0.2,2

# Normalized Softmax: published best, in its own units: lr 0.00446892, temperature 0.108747
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_NormalizedSoftmax --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss softmax --loss_softmax_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_softmax_temperature~LOG_BAYESIAN~ 1e-2,1e2 --samples_per_class 1

# CosFace: published best, in its own units: lr 0.00253466, margin 0.618227, scale 100
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_CosFace --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss cosface --loss_cosface_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_cosface_margin~BAYESIAN~ 0,1 --loss_cosface_scale~BAYESIAN~ 0.01,200 --samples_per_class 1

# ArcFace: published best, in its own units: lr 0.00513841, margin 23.2259, scale 100
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_ArcFace --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss arcface --loss_arcface_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_arcface_angular_margin~BAYESIAN~ 0,1.570796327 --loss_arcface_feature_scale~BAYESIAN~ 0.01,200 --samples_per_class 1

# FastAP: published best, in its own units: num_bins 17
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_FastAP --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss fastap --loss_fastap_num_bins~INT_BAYESIAN~ 2,32

# SNR Contrastive: published best, in its own units: pos_margin 0.326496, neg_margin 0.844647, regularizer_weight 0.13826
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_SNRContrastive --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss snr_contrastive --batch_mining none --loss_snr_contrastive_pos_margin~BAYESIAN~ 0,2 --loss_snr_contrastive_neg_margin~BAYESIAN~ 0,2 --loss_snr_contrastive_regularizer_weight~BAYESIAN~ 0,1

# Multi Similarity: published best, in its own units: alpha 0.01, beta 50.6018, base 0.562482
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_MS --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss multisimilarity --loss_multisimilarity_margin inf --loss_multisimilarity_pos_weight~BAYESIAN~ 0.001,100 --loss_multisimilarity_neg_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_thresh~BAYESIAN~ 0,1

# Multi Similarity + Miner: published best, in its own units: alpha 17.9701, beta 75.6628, base 0.776257, epsilon 0.394007
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_MSMiner --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss multisimilarity --loss_multisimilarity_pos_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_neg_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_thresh~BAYESIAN~ 0,1 --loss_multisimilarity_margin~BAYESIAN~ 0,1

# SoftTriple: published best, in its own units: lr 5.376e-05, la 78.0212, gamma 58.951, reg_weight 0.375479, margin 0.430796
python -m search --config mlrc_cub200 --source $datapath --project MLRC --group MLRC_CUB_SoftTriple --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss softtriplet --loss_softtriplet_n_centroids 10 --loss_softtriplet_lrmulti~LOG_BAYESIAN~ 1,1000000 --loss_softtriplet_lambda~BAYESIAN~ 0.01,100 --loss_softtriplet_gamma~BAYESIAN~ 0.0001,100 --loss_softtriplet_reg_weight~BAYESIAN~ 0,1 --loss_softtriplet_margin_delta~BAYESIAN~ 0,1 --samples_per_class 1

# ============================== cars196

# Contrastive: published best, in its own units: pos_margin 0.265234, neg_margin 0.540941
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_Contrastive --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss contrastive --batch_mining none --loss_contrastive_reduction nonzero --loss_contrastive_pos_margin~BAYESIAN~ -0.2,2 --loss_contrastive_neg_margin~BAYESIAN~ -0.2,2

# Triplet: published best, in its own units: margin 0.119027
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_Triplet --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss triplet --batch_mining all --loss_triplet_distance euclidean --loss_triplet_reduction nonzero --loss_triplet_margin~BAYESIAN~ -0.2,2

# NTXent: published best, in its own units: temperature 0.0219261
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_NTXent --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss ntxent --loss_ntxent_temperature~LOG_BAYESIAN~ 1e-5,1e2

# ProxyNCA: published best, in its own units: lr 0.00443432, softmax_scale 7.97053
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_ProxyNCA --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss proxynca_pp --loss_proxynca_pp_lrmulti~LOG_BAYESIAN~ 1,1000000 --loss_proxynca_pp_softmax_scale~BAYESIAN~ 0.01,100 --samples_per_class 1

# Margin: published best, in its own units: lr 0.00011114, margin 0.0781719, beta 1.31644
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_Margin --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss margin --batch_mining all --loss_margin_beta_shared --loss_margin_beta_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_margin_margin~BAYESIAN~ -0.2,2 --loss_margin_beta~BAYESIAN~ -0.2,2

# Margin / class: published best, in its own units: lr 4.76794e-05, margin 0.0776074, beta 0.959887
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_MarginClass --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss margin --batch_mining all --loss_margin_beta_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_margin_margin~BAYESIAN~ -0.2,2 --loss_margin_beta~BAYESIAN~ -0.2,2

# Normalized Softmax: published best, in its own units: lr 0.0110462, temperature 0.0886325
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_NormalizedSoftmax --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss softmax --loss_softmax_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_softmax_temperature~LOG_BAYESIAN~ 1e-2,1e2 --samples_per_class 1

# CosFace: published best, in its own units: lr 0.00741299, margin 0.43244, scale 161.597
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_CosFace --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss cosface --loss_cosface_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_cosface_margin~BAYESIAN~ 0,1 --loss_cosface_scale~BAYESIAN~ 0.01,200 --samples_per_class 1

# ArcFace: published best, in its own units: lr 7.39852e-06, margin 20.5223, scale 49.5017
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_ArcFace --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss arcface --loss_arcface_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_arcface_angular_margin~BAYESIAN~ 0,1.570796327 --loss_arcface_feature_scale~BAYESIAN~ 0.01,200 --samples_per_class 1

# FastAP: published best, in its own units: num_bins 27
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_FastAP --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss fastap --loss_fastap_num_bins~INT_BAYESIAN~ 2,32

# SNR Contrastive: published best, in its own units: pos_margin 0.167051, neg_margin 0.933756, regularizer_weight 2.37425e-16
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_SNRContrastive --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss snr_contrastive --batch_mining none --loss_snr_contrastive_pos_margin~BAYESIAN~ 0,2 --loss_snr_contrastive_neg_margin~BAYESIAN~ 0,2 --loss_snr_contrastive_regularizer_weight~BAYESIAN~ 0,1

# Multi Similarity: published best, in its own units: alpha 14.3588, beta 75.8349, base 0.661556
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_MS --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss multisimilarity --loss_multisimilarity_margin inf --loss_multisimilarity_pos_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_neg_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_thresh~BAYESIAN~ 0,1

# Multi Similarity + Miner: published best, in its own units: alpha 7.49787, beta 47.9932, base 0.63148, epsilon 0.725746
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_MSMiner --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss multisimilarity --loss_multisimilarity_pos_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_neg_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_thresh~BAYESIAN~ 0,1 --loss_multisimilarity_margin~BAYESIAN~ 0,1

# SoftTriple: published best, in its own units: lr 0.000140341, la 17.6978, gamma 19.1873, reg_weight 0.0669818, margin 0.358823
python -m search --config mlrc_cars196 --source $datapath --project MLRC --group MLRC_CARS_SoftTriple --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss softtriplet --loss_softtriplet_n_centroids 10 --loss_softtriplet_lrmulti~LOG_BAYESIAN~ 1,1000000 --loss_softtriplet_lambda~BAYESIAN~ 0.01,100 --loss_softtriplet_gamma~BAYESIAN~ 0.01,100 --loss_softtriplet_reg_weight~BAYESIAN~ 0,1 --loss_softtriplet_margin_delta~BAYESIAN~ 0,1 --samples_per_class 1

# ============================== online_products

# Contrastive: published best, in its own units: pos_margin 0.285026, neg_margin 0.513015
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_Contrastive --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss contrastive --batch_mining none --loss_contrastive_reduction nonzero --loss_contrastive_pos_margin~BAYESIAN~ -0.2,2 --loss_contrastive_neg_margin~BAYESIAN~ -0.2,2

# Triplet: published best, in its own units: margin 0.0451925
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_Triplet --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss triplet --batch_mining all --loss_triplet_distance euclidean --loss_triplet_reduction nonzero --loss_triplet_margin~BAYESIAN~ -0.2,2

# NTXent: published best, in its own units: temperature 0.000240119
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_NTXent --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss ntxent --loss_ntxent_temperature~LOG_BAYESIAN~ 1e-5,1e2

# ProxyNCA: published best, in its own units: lr 0.000528896, softmax_scale 10.7336
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_ProxyNCA --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss proxynca_pp --loss_proxynca_pp_lrmulti~LOG_BAYESIAN~ 1,1000000 --loss_proxynca_pp_softmax_scale~BAYESIAN~ 0.01,100 --samples_per_class 1

# Margin: published best, in its own units: lr 0.00182796, margin 0.0915777, beta 1.10723
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_Margin --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss margin --batch_mining all --loss_margin_beta_shared --loss_margin_beta_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_margin_margin~BAYESIAN~ -0.2,2 --loss_margin_beta~BAYESIAN~ -0.2,2

# Margin / class: published best, in its own units: lr 7.10754e-05, margin 0.0518644, beta 0.842459
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_MarginClass --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss margin --batch_mining all --loss_margin_beta_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_margin_margin~BAYESIAN~ -0.2,2 --loss_margin_beta~BAYESIAN~ -0.2,2

# Normalized Softmax: published best, in its own units: lr 0.000546834, temperature 0.0630624
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_NormalizedSoftmax --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss softmax --loss_softmax_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_softmax_temperature~LOG_BAYESIAN~ 1e-2,1e2 --samples_per_class 1

# CosFace: published best, in its own units: lr 0.00216067, margin 0.336413, scale 100
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_CosFace --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss cosface --loss_cosface_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_cosface_margin~BAYESIAN~ 0,1 --loss_cosface_scale~BAYESIAN~ 0.01,200 --samples_per_class 1

# ArcFace: published best, in its own units: lr 0.00201866, margin 18.6319, scale 220.363
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_ArcFace --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss arcface --loss_arcface_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_arcface_angular_margin~BAYESIAN~ 0,1.570796327 --loss_arcface_feature_scale~BAYESIAN~ 0.01,300 --samples_per_class 1

# FastAP: published best, in its own units: num_bins 16
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_FastAP --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss fastap --loss_fastap_num_bins~INT_BAYESIAN~ 3,32

# SNR Contrastive: published best, in its own units: pos_margin 0.375935, neg_margin 1.08316, regularizer_weight 5.55907e-18
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_SNRContrastive --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss snr_contrastive --batch_mining none --loss_snr_contrastive_pos_margin~BAYESIAN~ 0,2 --loss_snr_contrastive_neg_margin~BAYESIAN~ 0,2 --loss_snr_contrastive_regularizer_weight~BAYESIAN~ 0,1

# Multi Similarity: published best, in its own units: alpha 8.4925, beta 57.3886, base 0.416736
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_MS --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss multisimilarity --loss_multisimilarity_margin inf --loss_multisimilarity_pos_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_neg_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_thresh~BAYESIAN~ 0,1

# Multi Similarity + Miner: published best, in its own units: alpha 15.9472, beta 156.617, base 0.725038, epsilon 0.348276
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_MSMiner --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss multisimilarity --loss_multisimilarity_pos_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_neg_weight~BAYESIAN~ 0.01,200 --loss_multisimilarity_thresh~BAYESIAN~ 0,1 --loss_multisimilarity_margin~BAYESIAN~ 0,1

# SoftTriple: published best, in its own units: lr 8.68845e-05, la 100, gamma 47.9087, margin 0.314526
python -m search --config mlrc_sop --source $datapath --project MLRC --group MLRC_SOP_SoftTriple --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss softtriplet --loss_softtriplet_n_centroids 10 --loss_softtriplet_lrmulti~LOG_BAYESIAN~ 1,1000000 --loss_softtriplet_lambda~BAYESIAN~ 0.01,200 --loss_softtriplet_gamma~BAYESIAN~ 0.01,100 --loss_softtriplet_reg_weight 0 --loss_softtriplet_margin_delta~BAYESIAN~ 0,1 --samples_per_class 1

# ============================== cub200_bs256

# Contrastive: published best, in its own units: pos_margin 0.222742, neg_margin 0.769468
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_Contrastive --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss contrastive --batch_mining none --loss_contrastive_reduction nonzero --loss_contrastive_pos_margin~BAYESIAN~ -0.2,2 --loss_contrastive_neg_margin~BAYESIAN~ -0.2,2

# Triplet: published best, in its own units: margin 0.136836
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_Triplet --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss triplet --batch_mining all --loss_triplet_distance euclidean --loss_triplet_reduction nonzero --loss_triplet_margin~BAYESIAN~ -0.2,2

# NTXent: published best, in its own units: temperature 0.0415339
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_NTXent --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss ntxent --loss_ntxent_temperature~LOG_BAYESIAN~ 1e-2,1e2

# ProxyNCA: published best, in its own units: lr 0.216226, softmax_scale 10.0312
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_ProxyNCA --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss proxynca_pp --loss_proxynca_pp_lrmulti~LOG_BAYESIAN~ 1,1000000 --loss_proxynca_pp_softmax_scale~BAYESIAN~ 0.01,100 --samples_per_class 1 --data_sampler class_random

# Margin: published best, in its own units: lr 1e-06, margin 0.0674918, beta 0.976232
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_Margin --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss margin --batch_mining all --loss_margin_beta_shared --loss_margin_beta_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_margin_margin~BAYESIAN~ -0.2,2 --loss_margin_beta~BAYESIAN~ -0.2,2

# Margin / class: published best, in its own units: lr 0.0132827, margin -0.02049, beta 0.109784
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_MarginClass --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss margin --batch_mining all --loss_margin_beta_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_margin_margin~BAYESIAN~ -0.2,2 --loss_margin_beta~BAYESIAN~ -0.2,2

# Normalized Softmax: published best, in its own units: lr 0.072027, temperature 0.0707749
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_NormalizedSoftmax --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss softmax --loss_softmax_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_softmax_temperature~LOG_BAYESIAN~ 1e-2,1e2 --samples_per_class 1 --data_sampler class_random

# CosFace: published best, in its own units: lr 0.0039982, margin 0.414464, scale 88.2337
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_CosFace --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss cosface --loss_cosface_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_cosface_margin~BAYESIAN~ 0,1 --loss_cosface_scale~BAYESIAN~ 0.01,100 --samples_per_class 1 --data_sampler class_random

# ArcFace: published best, in its own units: lr 0.0395777, margin 23.148, scale 78.8662
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_ArcFace --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss arcface --loss_arcface_lr~LOG_BAYESIAN~ 1e-6,1e0 --loss_arcface_angular_margin~BAYESIAN~ 0,1.570796327 --loss_arcface_feature_scale~BAYESIAN~ 0.01,100 --samples_per_class 1 --data_sampler class_random

# FastAP: published best, in its own units: num_bins 86
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_FastAP --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss fastap --loss_fastap_num_bins~INT_BAYESIAN~ 2,250

# SNR Contrastive: published best, in its own units: pos_margin 0.118251, neg_margin 0.682215, regularizer_weight 0.474425
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_SNRContrastive --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss snr_contrastive --batch_mining none --loss_snr_contrastive_pos_margin~BAYESIAN~ 0,2 --loss_snr_contrastive_neg_margin~BAYESIAN~ 0,2 --loss_snr_contrastive_regularizer_weight~BAYESIAN~ 0,1

# Multi Similarity: published best, in its own units: alpha 0.01, beta 46.8524, base 0.825306
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_MS --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss multisimilarity --loss_multisimilarity_margin inf --loss_multisimilarity_pos_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_neg_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_thresh~BAYESIAN~ 0,1

# Multi Similarity + Miner: published best, in its own units: alpha 11.6375, beta 55.2015, base 0.858105, epsilon 0.423147
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_MSMiner --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss multisimilarity --loss_multisimilarity_pos_weight~BAYESIAN~ 1e-05,100 --loss_multisimilarity_neg_weight~BAYESIAN~ 0.01,100 --loss_multisimilarity_thresh~BAYESIAN~ 0,1 --loss_multisimilarity_margin~BAYESIAN~ 0,1

# SoftTriple: published best, in its own units: lr 0.000106374, la 72.1253, gamma 51.0794, reg_weight 0.443057, margin 0.695904
python -m search --config mlrc_cub200_bs256 --source $datapath --project MLRC --group MLRC_CUB256_SoftTriple --seed 0 --bayesian_optimization_n_iter 50 --reproductions 10 --loss softtriplet --loss_softtriplet_n_centroids 10 --loss_softtriplet_lrmulti~LOG_BAYESIAN~ 1,1000000 --loss_softtriplet_lambda~BAYESIAN~ 0.01,100 --loss_softtriplet_gamma~BAYESIAN~ 1e-05,100 --loss_softtriplet_reg_weight~BAYESIAN~ 0,1 --loss_softtriplet_margin_delta~BAYESIAN~ 0,1 --samples_per_class 1 --data_sampler class_random
