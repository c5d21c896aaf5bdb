#!/bin/sh
# 8 losses with the distance miner, each with and without its rho regularisation, x 3 seeds, on the embedded characters
#
# A small version, without a download, of a comparison in "Revisiting Training Strategies and Generalization Performance in Deep
# Metric Learning" (ICML 2020, arXiv 2002.08473). --batch_mining rho_distance is the distance miner, except that with probability
# --miner_rho_distance_cp it takes a sample of the anchor's own class for the negative. Only this differs within a pair. The runs,
# then tables and figures (results: docs/rho_sweep.md):
#   python -m launch experiments/Rho_Sweep.sh --jobs 2
#   python Result_Evaluations.py --runs Training_Results/glyphs --out Result_Tables/rho_sweep
# Common settings: configs/rho_glyphs.yaml. Longer training: python -m launch experiments/Rho_Sweep.sh -- --n_epochs 20

# Contrastive
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Contrastive --seed 0 --loss contrastive --batch_mining distance
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Contrastive --seed 1 --loss contrastive --batch_mining distance
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Contrastive --seed 2 --loss contrastive --batch_mining distance
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Contrastive --seed 0 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp 0.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Contrastive --seed 1 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp 0.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Contrastive --seed 2 --loss contrastive --batch_mining rho_distance --miner_rho_distance_cp 0.2

# Triplet, squared distances
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Triplet --seed 0 --loss triplet --batch_mining distance
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Triplet --seed 1 --loss triplet --batch_mining distance
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Triplet --seed 2 --loss triplet --batch_mining distance
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Triplet --seed 0 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Triplet --seed 1 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Triplet --seed 2 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.2

# Triplet, plain distances
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Triplet_Euclidean --seed 0 --loss triplet --batch_mining distance --loss_triplet_distance euclidean
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Triplet_Euclidean --seed 1 --loss triplet --batch_mining distance --loss_triplet_distance euclidean
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Triplet_Euclidean --seed 2 --loss triplet --batch_mining distance --loss_triplet_distance euclidean
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Triplet_Euclidean --seed 0 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_triplet_distance euclidean
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Triplet_Euclidean --seed 1 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_triplet_distance euclidean
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Triplet_Euclidean --seed 2 --loss triplet --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_triplet_distance euclidean

# Quadruplet
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Quadruplet --seed 0 --loss quadruplet --batch_mining distance
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Quadruplet --seed 1 --loss quadruplet --batch_mining distance
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Quadruplet --seed 2 --loss quadruplet --batch_mining distance
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Quadruplet --seed 0 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp 0.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Quadruplet --seed 1 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp 0.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Quadruplet --seed 2 --loss quadruplet --batch_mining rho_distance --miner_rho_distance_cp 0.2

# SNR, without its own regulariser in both: main.py drops it with the miner distance, but not with rho_distance
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_SNR --seed 0 --loss snr --batch_mining distance --loss_snr_reg_lambda 0
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_SNR --seed 1 --loss snr --batch_mining distance --loss_snr_reg_lambda 0
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_SNR --seed 2 --loss snr --batch_mining distance --loss_snr_reg_lambda 0
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_SNR --seed 0 --loss snr --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_snr_reg_lambda 0
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_SNR --seed 1 --loss snr --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_snr_reg_lambda 0
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_SNR --seed 2 --loss snr --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_snr_reg_lambda 0

# Margin, learned boundary from 0.6
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Margin_b06 --seed 0 --loss margin --batch_mining distance --loss_margin_beta 0.6
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Margin_b06 --seed 1 --loss margin --batch_mining distance --loss_margin_beta 0.6
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Margin_b06 --seed 2 --loss margin --batch_mining distance --loss_margin_beta 0.6
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Margin_b06 --seed 0 --loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_margin_beta 0.6
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Margin_b06 --seed 1 --loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_margin_beta 0.6
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Margin_b06 --seed 2 --loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_margin_beta 0.6

# Margin, learned boundary from 1.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Margin_b12 --seed 0 --loss margin --batch_mining distance --loss_margin_beta 1.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Margin_b12 --seed 1 --loss margin --batch_mining distance --loss_margin_beta 1.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Margin_b12 --seed 2 --loss margin --batch_mining distance --loss_margin_beta 1.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Margin_b12 --seed 0 --loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_margin_beta 1.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Margin_b12 --seed 1 --loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_margin_beta 1.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Margin_b12 --seed 2 --loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_margin_beta 1.2

# Margin, boundary fixed at 1.2
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Margin_b12_Constant --seed 0 --loss margin --batch_mining distance --loss_margin_beta 1.2 --loss_margin_beta_constant
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Margin_b12_Constant --seed 1 --loss margin --batch_mining distance --loss_margin_beta 1.2 --loss_margin_beta_constant
python main.py --config rho_glyphs --project RhoSweep --group Glyphs_Margin_b12_Constant --seed 2 --loss margin --batch_mining distance --loss_margin_beta 1.2 --loss_margin_beta_constant
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Margin_b12_Constant --seed 0 --loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_margin_beta 1.2 --loss_margin_beta_constant
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Margin_b12_Constant --seed 1 --loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_margin_beta 1.2 --loss_margin_beta_constant
python main.py --config rho_glyphs --project RhoSweep --group Glyphsreg_Margin_b12_Constant --seed 2 --loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --loss_margin_beta 1.2 --loss_margin_beta_constant
