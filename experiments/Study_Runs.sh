#!/bin/sh
# 9 losses, those with a miner with and without rho_distance, x 5 seeds, on emoji (pretrained network) and glyphs (random weights)
#
# Questions, protocol and results: docs/study.md. `make study-data` fetches the data. This file is written by experiments/study/protocol.py. In order:
#   python -m launch experiments/Study_Runs.sh --jobs 2 --filter "group Pilot"
#   python -m launch experiments/Study_Runs.sh --jobs 2 --filter "group Rate"
#   python -m experiments.study.protocol --choose Training_Results
#   python -m launch experiments/Study_Runs.sh --jobs 2 --filter "group Cp"
#   python -m experiments.study.protocol --choose Training_Results
#   python -m launch experiments/Study_Runs.sh --jobs 2 --filter "group (Emoji|Glyphs)"
#   python -m experiments.study.tables --runs Training_Results --write docs/study.md
# with OMP_NUM_THREADS=1. With all classes, on a GPU: emoji=emoji before each, and -- --gpu 0 --save_path … after it.
datapath=${datapath:-./Datasets}  # the folder of `make study-data`, without spaces
emoji=${emoji:-emoji_1008}  # emoji: all classes

# ============================== Emoji
rate_emoji_contrastive="--lr 0.00003"
rate_emoji_triplet="--lr 0.0001"
rate_emoji_margin="--lr 0.0001"
rate_emoji_quadruplet="--lr 0.0001"
rate_emoji_snr="--lr 0.0003"
rate_emoji_ms="--lr 0.0003"
rate_emoji_softmax="--lr 0.0001 --loss_softmax_lr 0.005"
rate_emoji_arcface="--lr 0.0001 --loss_arcface_lr 0.005"
rate_emoji_proxyanchor="--lr 0.0001"
cp_emoji_contrastive=0.2
cp_emoji_triplet=0.2
cp_emoji_margin=0.1
cp_emoji_quadruplet=0.1
cp_emoji_snr=0.2

# Emoji, pilot: how many epochs, and how far seeds differ (training and validation classes)
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Pilot_Emoji_Margin --seed 10 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.0001 --n_epochs 80 --splits_to_eval train val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Pilot_Emoji_MS --seed 10 --loss multisimilarity --lr 0.0001 --n_epochs 80 --splits_to_eval train val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Pilot_Emoji_Margin --seed 11 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.0001 --n_epochs 80 --splits_to_eval train val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Pilot_Emoji_MS --seed 11 --loss multisimilarity --lr 0.0001 --n_epochs 80 --splits_to_eval train val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Pilot_Emoji_Margin --seed 12 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.0001 --n_epochs 80 --splits_to_eval train val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Pilot_Emoji_MS --seed 12 --loss multisimilarity --lr 0.0001 --n_epochs 80 --splits_to_eval train val

# Emoji, search, 1: three rates for each loss (validation classes)
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Contrastive_0.00003 --seed 9 --loss contrastive --batch_mining distance --lr 0.00003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Contrastive_0.0001 --seed 9 --loss contrastive --batch_mining distance --lr 0.0001 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Contrastive_0.0003 --seed 9 --loss contrastive --batch_mining distance --lr 0.0003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Triplet_0.00003 --seed 9 --loss triplet --batch_mining distance --lr 0.00003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Triplet_0.0001 --seed 9 --loss triplet --batch_mining distance --lr 0.0001 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Triplet_0.0003 --seed 9 --loss triplet --batch_mining distance --lr 0.0003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Margin_0.00003 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.00003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Margin_0.0001 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.0001 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Margin_0.0003 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.0003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Quadruplet_0.00003 --seed 9 --loss quadruplet --batch_mining distance --lr 0.00003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Quadruplet_0.0001 --seed 9 --loss quadruplet --batch_mining distance --lr 0.0001 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Quadruplet_0.0003 --seed 9 --loss quadruplet --batch_mining distance --lr 0.0003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_SNR_0.00003 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance --lr 0.00003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_SNR_0.0001 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance --lr 0.0001 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_SNR_0.0003 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance --lr 0.0003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_MS_0.00003 --seed 9 --loss multisimilarity --lr 0.00003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_MS_0.0001 --seed 9 --loss multisimilarity --lr 0.0001 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_MS_0.0003 --seed 9 --loss multisimilarity --lr 0.0003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Softmax_0.00003 --seed 9 --loss softmax --lr 0.00003 --loss_softmax_lr 0.0015 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Softmax_0.0001 --seed 9 --loss softmax --lr 0.0001 --loss_softmax_lr 0.005 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_Softmax_0.0003 --seed 9 --loss softmax --lr 0.0003 --loss_softmax_lr 0.015 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_ArcFace_0.00003 --seed 9 --loss arcface --lr 0.00003 --loss_arcface_lr 0.0015 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_ArcFace_0.0001 --seed 9 --loss arcface --lr 0.0001 --loss_arcface_lr 0.005 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_ArcFace_0.0003 --seed 9 --loss arcface --lr 0.0003 --loss_arcface_lr 0.015 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_ProxyAnchor_0.00003 --seed 9 --loss proxyanchor --lr 0.00003 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_ProxyAnchor_0.0001 --seed 9 --loss proxyanchor --lr 0.0001 --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Rate_Emoji_ProxyAnchor_0.0003 --seed 9 --loss proxyanchor --lr 0.0003 --splits_to_eval val

# Emoji, search, 2: three probabilities for each loss with rho_distance, at its rate (validation classes)
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Contrastive_0.1 --seed 9 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp 0.1 $rate_emoji_contrastive --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Contrastive_0.2 --seed 9 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp 0.2 $rate_emoji_contrastive --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Contrastive_0.4 --seed 9 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp 0.4 $rate_emoji_contrastive --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Triplet_0.1 --seed 9 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.1 $rate_emoji_triplet --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Triplet_0.2 --seed 9 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.2 $rate_emoji_triplet --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Triplet_0.4 --seed 9 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.4 $rate_emoji_triplet --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Margin_0.1 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp 0.1 $rate_emoji_margin --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Margin_0.2 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp 0.2 $rate_emoji_margin --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Margin_0.4 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp 0.4 $rate_emoji_margin --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Quadruplet_0.1 --seed 9 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp 0.1 $rate_emoji_quadruplet --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Quadruplet_0.2 --seed 9 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp 0.2 $rate_emoji_quadruplet --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_Quadruplet_0.4 --seed 9 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp 0.4 $rate_emoji_quadruplet --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_SNR_0.1 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp 0.1 $rate_emoji_snr --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_SNR_0.2 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp 0.2 $rate_emoji_snr --splits_to_eval val
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Cp_Emoji_SNR_0.4 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp 0.4 $rate_emoji_snr --splits_to_eval val

# Emoji, the study
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Contrastive --seed 0 --loss contrastive --batch_mining distance $rate_emoji_contrastive
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Contrastive --seed 0 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_contrastive $rate_emoji_contrastive
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Triplet --seed 0 --loss triplet --batch_mining distance $rate_emoji_triplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Triplet --seed 0 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_triplet $rate_emoji_triplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Margin --seed 0 --loss margin --loss_margin_beta 0.6 --batch_mining distance $rate_emoji_margin
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Margin --seed 0 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_margin $rate_emoji_margin
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Quadruplet --seed 0 --loss quadruplet --batch_mining distance $rate_emoji_quadruplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Quadruplet --seed 0 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_quadruplet $rate_emoji_quadruplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_SNR --seed 0 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance $rate_emoji_snr
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_SNR --seed 0 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_snr $rate_emoji_snr
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_MS --seed 0 --loss multisimilarity $rate_emoji_ms
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Softmax --seed 0 --loss softmax $rate_emoji_softmax
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_ArcFace --seed 0 --loss arcface $rate_emoji_arcface
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_ProxyAnchor --seed 0 --loss proxyanchor $rate_emoji_proxyanchor
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Contrastive --seed 1 --loss contrastive --batch_mining distance $rate_emoji_contrastive
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Contrastive --seed 1 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_contrastive $rate_emoji_contrastive
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Triplet --seed 1 --loss triplet --batch_mining distance $rate_emoji_triplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Triplet --seed 1 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_triplet $rate_emoji_triplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Margin --seed 1 --loss margin --loss_margin_beta 0.6 --batch_mining distance $rate_emoji_margin
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Margin --seed 1 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_margin $rate_emoji_margin
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Quadruplet --seed 1 --loss quadruplet --batch_mining distance $rate_emoji_quadruplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Quadruplet --seed 1 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_quadruplet $rate_emoji_quadruplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_SNR --seed 1 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance $rate_emoji_snr
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_SNR --seed 1 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_snr $rate_emoji_snr
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_MS --seed 1 --loss multisimilarity $rate_emoji_ms
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Softmax --seed 1 --loss softmax $rate_emoji_softmax
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_ArcFace --seed 1 --loss arcface $rate_emoji_arcface
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_ProxyAnchor --seed 1 --loss proxyanchor $rate_emoji_proxyanchor
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Contrastive --seed 2 --loss contrastive --batch_mining distance $rate_emoji_contrastive
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Contrastive --seed 2 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_contrastive $rate_emoji_contrastive
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Triplet --seed 2 --loss triplet --batch_mining distance $rate_emoji_triplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Triplet --seed 2 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_triplet $rate_emoji_triplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Margin --seed 2 --loss margin --loss_margin_beta 0.6 --batch_mining distance $rate_emoji_margin
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Margin --seed 2 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_margin $rate_emoji_margin
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Quadruplet --seed 2 --loss quadruplet --batch_mining distance $rate_emoji_quadruplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Quadruplet --seed 2 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_quadruplet $rate_emoji_quadruplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_SNR --seed 2 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance $rate_emoji_snr
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_SNR --seed 2 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_snr $rate_emoji_snr
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_MS --seed 2 --loss multisimilarity $rate_emoji_ms
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Softmax --seed 2 --loss softmax $rate_emoji_softmax
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_ArcFace --seed 2 --loss arcface $rate_emoji_arcface
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_ProxyAnchor --seed 2 --loss proxyanchor $rate_emoji_proxyanchor
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Contrastive --seed 3 --loss contrastive --batch_mining distance $rate_emoji_contrastive
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Contrastive --seed 3 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_contrastive $rate_emoji_contrastive
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Triplet --seed 3 --loss triplet --batch_mining distance $rate_emoji_triplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Triplet --seed 3 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_triplet $rate_emoji_triplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Margin --seed 3 --loss margin --loss_margin_beta 0.6 --batch_mining distance $rate_emoji_margin
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Margin --seed 3 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_margin $rate_emoji_margin
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Quadruplet --seed 3 --loss quadruplet --batch_mining distance $rate_emoji_quadruplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Quadruplet --seed 3 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_quadruplet $rate_emoji_quadruplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_SNR --seed 3 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance $rate_emoji_snr
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_SNR --seed 3 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_snr $rate_emoji_snr
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_MS --seed 3 --loss multisimilarity $rate_emoji_ms
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Softmax --seed 3 --loss softmax $rate_emoji_softmax
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_ArcFace --seed 3 --loss arcface $rate_emoji_arcface
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_ProxyAnchor --seed 3 --loss proxyanchor $rate_emoji_proxyanchor
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Contrastive --seed 4 --loss contrastive --batch_mining distance $rate_emoji_contrastive
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Contrastive --seed 4 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_contrastive $rate_emoji_contrastive
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Triplet --seed 4 --loss triplet --batch_mining distance $rate_emoji_triplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Triplet --seed 4 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_triplet $rate_emoji_triplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Margin --seed 4 --loss margin --loss_margin_beta 0.6 --batch_mining distance $rate_emoji_margin
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Margin --seed 4 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_margin $rate_emoji_margin
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Quadruplet --seed 4 --loss quadruplet --batch_mining distance $rate_emoji_quadruplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_Quadruplet --seed 4 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_quadruplet $rate_emoji_quadruplet
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_SNR --seed 4 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance $rate_emoji_snr
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emojireg_SNR --seed 4 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp $cp_emoji_snr $rate_emoji_snr
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_MS --seed 4 --loss multisimilarity $rate_emoji_ms
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_Softmax --seed 4 --loss softmax $rate_emoji_softmax
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_ArcFace --seed 4 --loss arcface $rate_emoji_arcface
python main.py --config study_emoji --dataset_folder_path $datapath/$emoji --weights $datapath/efficientnet_lite0.safetensors --project Study --group Emoji_ProxyAnchor --seed 4 --loss proxyanchor $rate_emoji_proxyanchor

# ============================== Glyphs
rate_glyphs_contrastive="--lr 0.003"
rate_glyphs_triplet="--lr 0.001"
rate_glyphs_margin="--lr 0.003"
rate_glyphs_quadruplet="--lr 0.001"
rate_glyphs_snr="--lr 0.001"
rate_glyphs_ms="--lr 0.003"
rate_glyphs_softmax="--lr 0.003 --loss_softmax_lr 0.15"
rate_glyphs_arcface="--lr 0.0003 --loss_arcface_lr 0.015"
rate_glyphs_proxyanchor="--lr 0.001"
cp_glyphs_contrastive=0.1
cp_glyphs_triplet=0.1
cp_glyphs_margin=0.1
cp_glyphs_quadruplet=0.2
cp_glyphs_snr=0.1

# Glyphs, pilot: how many epochs, and how far seeds differ (training and validation classes)
python main.py --config study_glyphs --project Study --group Pilot_Glyphs_Margin --seed 10 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.001 --n_epochs 30 --splits_to_eval train val
python main.py --config study_glyphs --project Study --group Pilot_Glyphs_MS --seed 10 --loss multisimilarity --lr 0.001 --n_epochs 30 --splits_to_eval train val
python main.py --config study_glyphs --project Study --group Pilot_Glyphs_Margin --seed 11 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.001 --n_epochs 30 --splits_to_eval train val
python main.py --config study_glyphs --project Study --group Pilot_Glyphs_MS --seed 11 --loss multisimilarity --lr 0.001 --n_epochs 30 --splits_to_eval train val
python main.py --config study_glyphs --project Study --group Pilot_Glyphs_Margin --seed 12 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.001 --n_epochs 30 --splits_to_eval train val
python main.py --config study_glyphs --project Study --group Pilot_Glyphs_MS --seed 12 --loss multisimilarity --lr 0.001 --n_epochs 30 --splits_to_eval train val

# Glyphs, search, 1: three rates for each loss (validation classes)
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Contrastive_0.0003 --seed 9 --loss contrastive --batch_mining distance --lr 0.0003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Contrastive_0.001 --seed 9 --loss contrastive --batch_mining distance --lr 0.001 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Contrastive_0.003 --seed 9 --loss contrastive --batch_mining distance --lr 0.003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Triplet_0.0003 --seed 9 --loss triplet --batch_mining distance --lr 0.0003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Triplet_0.001 --seed 9 --loss triplet --batch_mining distance --lr 0.001 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Triplet_0.003 --seed 9 --loss triplet --batch_mining distance --lr 0.003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Margin_0.0003 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.0003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Margin_0.001 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.001 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Margin_0.003 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Quadruplet_0.0003 --seed 9 --loss quadruplet --batch_mining distance --lr 0.0003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Quadruplet_0.001 --seed 9 --loss quadruplet --batch_mining distance --lr 0.001 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Quadruplet_0.003 --seed 9 --loss quadruplet --batch_mining distance --lr 0.003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_SNR_0.0003 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance --lr 0.0003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_SNR_0.001 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance --lr 0.001 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_SNR_0.003 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance --lr 0.003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_MS_0.0003 --seed 9 --loss multisimilarity --lr 0.0003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_MS_0.001 --seed 9 --loss multisimilarity --lr 0.001 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_MS_0.003 --seed 9 --loss multisimilarity --lr 0.003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Softmax_0.0003 --seed 9 --loss softmax --lr 0.0003 --loss_softmax_lr 0.015 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Softmax_0.001 --seed 9 --loss softmax --lr 0.001 --loss_softmax_lr 0.05 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_Softmax_0.003 --seed 9 --loss softmax --lr 0.003 --loss_softmax_lr 0.15 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_ArcFace_0.0003 --seed 9 --loss arcface --lr 0.0003 --loss_arcface_lr 0.015 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_ArcFace_0.001 --seed 9 --loss arcface --lr 0.001 --loss_arcface_lr 0.05 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_ArcFace_0.003 --seed 9 --loss arcface --lr 0.003 --loss_arcface_lr 0.15 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_ProxyAnchor_0.0003 --seed 9 --loss proxyanchor --lr 0.0003 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_ProxyAnchor_0.001 --seed 9 --loss proxyanchor --lr 0.001 --splits_to_eval val
python main.py --config study_glyphs --project Study --group Rate_Glyphs_ProxyAnchor_0.003 --seed 9 --loss proxyanchor --lr 0.003 --splits_to_eval val

# Glyphs, search, 2: three probabilities for each loss with rho_distance, at its rate (validation classes)
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Contrastive_0.1 --seed 9 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp 0.1 $rate_glyphs_contrastive --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Contrastive_0.2 --seed 9 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp 0.2 $rate_glyphs_contrastive --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Contrastive_0.4 --seed 9 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp 0.4 $rate_glyphs_contrastive --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Triplet_0.1 --seed 9 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.1 $rate_glyphs_triplet --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Triplet_0.2 --seed 9 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.2 $rate_glyphs_triplet --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Triplet_0.4 --seed 9 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.4 $rate_glyphs_triplet --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Margin_0.1 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp 0.1 $rate_glyphs_margin --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Margin_0.2 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp 0.2 $rate_glyphs_margin --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Margin_0.4 --seed 9 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp 0.4 $rate_glyphs_margin --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Quadruplet_0.1 --seed 9 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp 0.1 $rate_glyphs_quadruplet --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Quadruplet_0.2 --seed 9 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp 0.2 $rate_glyphs_quadruplet --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_Quadruplet_0.4 --seed 9 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp 0.4 $rate_glyphs_quadruplet --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_SNR_0.1 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp 0.1 $rate_glyphs_snr --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_SNR_0.2 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp 0.2 $rate_glyphs_snr --splits_to_eval val
python main.py --config study_glyphs --project Study --group Cp_Glyphs_SNR_0.4 --seed 9 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp 0.4 $rate_glyphs_snr --splits_to_eval val

# Glyphs, the study
python main.py --config study_glyphs --project Study --group Glyphs_Contrastive --seed 0 --loss contrastive --batch_mining distance $rate_glyphs_contrastive
python main.py --config study_glyphs --project Study --group Glyphsreg_Contrastive --seed 0 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_contrastive $rate_glyphs_contrastive
python main.py --config study_glyphs --project Study --group Glyphs_Triplet --seed 0 --loss triplet --batch_mining distance $rate_glyphs_triplet
python main.py --config study_glyphs --project Study --group Glyphsreg_Triplet --seed 0 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_triplet $rate_glyphs_triplet
python main.py --config study_glyphs --project Study --group Glyphs_Margin --seed 0 --loss margin --loss_margin_beta 0.6 --batch_mining distance $rate_glyphs_margin
python main.py --config study_glyphs --project Study --group Glyphsreg_Margin --seed 0 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_margin $rate_glyphs_margin
python main.py --config study_glyphs --project Study --group Glyphs_Quadruplet --seed 0 --loss quadruplet --batch_mining distance $rate_glyphs_quadruplet
python main.py --config study_glyphs --project Study --group Glyphsreg_Quadruplet --seed 0 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_quadruplet $rate_glyphs_quadruplet
python main.py --config study_glyphs --project Study --group Glyphs_SNR --seed 0 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance $rate_glyphs_snr
python main.py --config study_glyphs --project Study --group Glyphsreg_SNR --seed 0 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_snr $rate_glyphs_snr
python main.py --config study_glyphs --project Study --group Glyphs_MS --seed 0 --loss multisimilarity $rate_glyphs_ms
python main.py --config study_glyphs --project Study --group Glyphs_Softmax --seed 0 --loss softmax $rate_glyphs_softmax
python main.py --config study_glyphs --project Study --group Glyphs_ArcFace --seed 0 --loss arcface $rate_glyphs_arcface
python main.py --config study_glyphs --project Study --group Glyphs_ProxyAnchor --seed 0 --loss proxyanchor $rate_glyphs_proxyanchor
python main.py --config study_glyphs --project Study --group Glyphs_Contrastive --seed 1 --loss contrastive --batch_mining distance $rate_glyphs_contrastive
python main.py --config study_glyphs --project Study --group Glyphsreg_Contrastive --seed 1 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_contrastive $rate_glyphs_contrastive
python main.py --config study_glyphs --project Study --group Glyphs_Triplet --seed 1 --loss triplet --batch_mining distance $rate_glyphs_triplet
python main.py --config study_glyphs --project Study --group Glyphsreg_Triplet --seed 1 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_triplet $rate_glyphs_triplet
python main.py --config study_glyphs --project Study --group Glyphs_Margin --seed 1 --loss margin --loss_margin_beta 0.6 --batch_mining distance $rate_glyphs_margin
python main.py --config study_glyphs --project Study --group Glyphsreg_Margin --seed 1 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_margin $rate_glyphs_margin
python main.py --config study_glyphs --project Study --group Glyphs_Quadruplet --seed 1 --loss quadruplet --batch_mining distance $rate_glyphs_quadruplet
python main.py --config study_glyphs --project Study --group Glyphsreg_Quadruplet --seed 1 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_quadruplet $rate_glyphs_quadruplet
python main.py --config study_glyphs --project Study --group Glyphs_SNR --seed 1 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance $rate_glyphs_snr
python main.py --config study_glyphs --project Study --group Glyphsreg_SNR --seed 1 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_snr $rate_glyphs_snr
python main.py --config study_glyphs --project Study --group Glyphs_MS --seed 1 --loss multisimilarity $rate_glyphs_ms
python main.py --config study_glyphs --project Study --group Glyphs_Softmax --seed 1 --loss softmax $rate_glyphs_softmax
python main.py --config study_glyphs --project Study --group Glyphs_ArcFace --seed 1 --loss arcface $rate_glyphs_arcface
python main.py --config study_glyphs --project Study --group Glyphs_ProxyAnchor --seed 1 --loss proxyanchor $rate_glyphs_proxyanchor
python main.py --config study_glyphs --project Study --group Glyphs_Contrastive --seed 2 --loss contrastive --batch_mining distance $rate_glyphs_contrastive
python main.py --config study_glyphs --project Study --group Glyphsreg_Contrastive --seed 2 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_contrastive $rate_glyphs_contrastive
python main.py --config study_glyphs --project Study --group Glyphs_Triplet --seed 2 --loss triplet --batch_mining distance $rate_glyphs_triplet
python main.py --config study_glyphs --project Study --group Glyphsreg_Triplet --seed 2 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_triplet $rate_glyphs_triplet
python main.py --config study_glyphs --project Study --group Glyphs_Margin --seed 2 --loss margin --loss_margin_beta 0.6 --batch_mining distance $rate_glyphs_margin
python main.py --config study_glyphs --project Study --group Glyphsreg_Margin --seed 2 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_margin $rate_glyphs_margin
python main.py --config study_glyphs --project Study --group Glyphs_Quadruplet --seed 2 --loss quadruplet --batch_mining distance $rate_glyphs_quadruplet
python main.py --config study_glyphs --project Study --group Glyphsreg_Quadruplet --seed 2 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_quadruplet $rate_glyphs_quadruplet
python main.py --config study_glyphs --project Study --group Glyphs_SNR --seed 2 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance $rate_glyphs_snr
python main.py --config study_glyphs --project Study --group Glyphsreg_SNR --seed 2 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_snr $rate_glyphs_snr
python main.py --config study_glyphs --project Study --group Glyphs_MS --seed 2 --loss multisimilarity $rate_glyphs_ms
python main.py --config study_glyphs --project Study --group Glyphs_Softmax --seed 2 --loss softmax $rate_glyphs_softmax
python main.py --config study_glyphs --project Study --group Glyphs_ArcFace --seed 2 --loss arcface $rate_glyphs_arcface
python main.py --config study_glyphs --project Study --group Glyphs_ProxyAnchor --seed 2 --loss proxyanchor $rate_glyphs_proxyanchor
python main.py --config study_glyphs --project Study --group Glyphs_Contrastive --seed 3 --loss contrastive --batch_mining distance $rate_glyphs_contrastive
python main.py --config study_glyphs --project Study --group Glyphsreg_Contrastive --seed 3 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_contrastive $rate_glyphs_contrastive
python main.py --config study_glyphs --project Study --group Glyphs_Triplet --seed 3 --loss triplet --batch_mining distance $rate_glyphs_triplet
python main.py --config study_glyphs --project Study --group Glyphsreg_Triplet --seed 3 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_triplet $rate_glyphs_triplet
python main.py --config study_glyphs --project Study --group Glyphs_Margin --seed 3 --loss margin --loss_margin_beta 0.6 --batch_mining distance $rate_glyphs_margin
python main.py --config study_glyphs --project Study --group Glyphsreg_Margin --seed 3 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_margin $rate_glyphs_margin
python main.py --config study_glyphs --project Study --group Glyphs_Quadruplet --seed 3 --loss quadruplet --batch_mining distance $rate_glyphs_quadruplet
python main.py --config study_glyphs --project Study --group Glyphsreg_Quadruplet --seed 3 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_quadruplet $rate_glyphs_quadruplet
python main.py --config study_glyphs --project Study --group Glyphs_SNR --seed 3 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance $rate_glyphs_snr
python main.py --config study_glyphs --project Study --group Glyphsreg_SNR --seed 3 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_snr $rate_glyphs_snr
python main.py --config study_glyphs --project Study --group Glyphs_MS --seed 3 --loss multisimilarity $rate_glyphs_ms
python main.py --config study_glyphs --project Study --group Glyphs_Softmax --seed 3 --loss softmax $rate_glyphs_softmax
python main.py --config study_glyphs --project Study --group Glyphs_ArcFace --seed 3 --loss arcface $rate_glyphs_arcface
python main.py --config study_glyphs --project Study --group Glyphs_ProxyAnchor --seed 3 --loss proxyanchor $rate_glyphs_proxyanchor
python main.py --config study_glyphs --project Study --group Glyphs_Contrastive --seed 4 --loss contrastive --batch_mining distance $rate_glyphs_contrastive
python main.py --config study_glyphs --project Study --group Glyphsreg_Contrastive --seed 4 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_contrastive $rate_glyphs_contrastive
python main.py --config study_glyphs --project Study --group Glyphs_Triplet --seed 4 --loss triplet --batch_mining distance $rate_glyphs_triplet
python main.py --config study_glyphs --project Study --group Glyphsreg_Triplet --seed 4 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_triplet $rate_glyphs_triplet
python main.py --config study_glyphs --project Study --group Glyphs_Margin --seed 4 --loss margin --loss_margin_beta 0.6 --batch_mining distance $rate_glyphs_margin
python main.py --config study_glyphs --project Study --group Glyphsreg_Margin --seed 4 --loss margin --loss_margin_beta 0.6 --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_margin $rate_glyphs_margin
python main.py --config study_glyphs --project Study --group Glyphs_Quadruplet --seed 4 --loss quadruplet --batch_mining distance $rate_glyphs_quadruplet
python main.py --config study_glyphs --project Study --group Glyphsreg_Quadruplet --seed 4 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_quadruplet $rate_glyphs_quadruplet
python main.py --config study_glyphs --project Study --group Glyphs_SNR --seed 4 --loss snr --loss_snr_reg_lambda 0 --batch_mining distance $rate_glyphs_snr
python main.py --config study_glyphs --project Study --group Glyphsreg_SNR --seed 4 --loss snr --loss_snr_reg_lambda 0 --batch_mining rho_distance --miner_rho_distance_cp $cp_glyphs_snr $rate_glyphs_snr
python main.py --config study_glyphs --project Study --group Glyphs_MS --seed 4 --loss multisimilarity $rate_glyphs_ms
python main.py --config study_glyphs --project Study --group Glyphs_Softmax --seed 4 --loss softmax $rate_glyphs_softmax
python main.py --config study_glyphs --project Study --group Glyphs_ArcFace --seed 4 --loss arcface $rate_glyphs_arcface
python main.py --config study_glyphs --project Study --group Glyphs_ProxyAnchor --seed 4 --loss proxyanchor $rate_glyphs_proxyanchor
