#!/bin/sh
# The recipes of the frontier x their sets x 5 seeds
#
# One run a line. To train all of them, two at a time, without the finished ones:
#   python -m launch experiments/Frontier_Runs.sh --jobs 2 --gpus 0 1
# To train some of them and log to W&B too: python -m launch experiments/Frontier_Runs.sh --filter CUB_HIER -- --log_online
#
# Each line is a preset of configs/, whose first lines give paper, code, conditions, and where the two differ: docs/recipes.md. Above
# each block: the published R@1 in percent, which holds under its own backbone, pretraining and dimensions: such figures never stand in
# one column unmarked. Where the authors have no settings for a set there is no block. None of these runs has been made here.
datapath=${datapath:-./Datasets}  # parent folder of cub200, cars196, online_products, inshop, Market-1501-v15.09.15 and inaturalist2018, without spaces

# ============================== cub200

# CUB_HypDINO, Hyp-DINO: published R@1 80.9 (DINO ViT-S/16, 384 dimensions)
python main.py --config hyp_dino_cub200 --source $datapath --project Frontier --group CUB_HypDINO --seed 0
python main.py --config hyp_dino_cub200 --source $datapath --project Frontier --group CUB_HypDINO --seed 1
python main.py --config hyp_dino_cub200 --source $datapath --project Frontier --group CUB_HypDINO --seed 2
python main.py --config hyp_dino_cub200 --source $datapath --project Frontier --group CUB_HypDINO --seed 3
python main.py --config hyp_dino_cub200 --source $datapath --project Frontier --group CUB_HypDINO --seed 4

# CUB_HIER, HIER (DINO): published R@1 81.1 (DINO ViT-S/16, 384 dimensions)
python main.py --config hier_dino_cub200 --source $datapath --project Frontier --group CUB_HIER --seed 0
python main.py --config hier_dino_cub200 --source $datapath --project Frontier --group CUB_HIER --seed 1
python main.py --config hier_dino_cub200 --source $datapath --project Frontier --group CUB_HIER --seed 2
python main.py --config hier_dino_cub200 --source $datapath --project Frontier --group CUB_HIER --seed 3
python main.py --config hier_dino_cub200 --source $datapath --project Frontier --group CUB_HIER --seed 4

# CUB_ProxyAnchor, Proxy-Anchor (R50): published R@1 69.9 (ResNet-50, 512 dimensions)
python main.py --config proxyanchor_r50_cub200 --source $datapath --project Frontier --group CUB_ProxyAnchor --seed 0
python main.py --config proxyanchor_r50_cub200 --source $datapath --project Frontier --group CUB_ProxyAnchor --seed 1
python main.py --config proxyanchor_r50_cub200 --source $datapath --project Frontier --group CUB_ProxyAnchor --seed 2
python main.py --config proxyanchor_r50_cub200 --source $datapath --project Frontier --group CUB_ProxyAnchor --seed 3
python main.py --config proxyanchor_r50_cub200 --source $datapath --project Frontier --group CUB_ProxyAnchor --seed 4

# CUB_RecallatK, Recall@k surrogate (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config recallatk_r50_cub200 --source $datapath --project Frontier --group CUB_RecallatK --seed 0
python main.py --config recallatk_r50_cub200 --source $datapath --project Frontier --group CUB_RecallatK --seed 1
python main.py --config recallatk_r50_cub200 --source $datapath --project Frontier --group CUB_RecallatK --seed 2
python main.py --config recallatk_r50_cub200 --source $datapath --project Frontier --group CUB_RecallatK --seed 3
python main.py --config recallatk_r50_cub200 --source $datapath --project Frontier --group CUB_RecallatK --seed 4

# CUB_ROADMAP, ROADMAP (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config roadmap_r50_cub200 --source $datapath --project Frontier --group CUB_ROADMAP --seed 0
python main.py --config roadmap_r50_cub200 --source $datapath --project Frontier --group CUB_ROADMAP --seed 1
python main.py --config roadmap_r50_cub200 --source $datapath --project Frontier --group CUB_ROADMAP --seed 2
python main.py --config roadmap_r50_cub200 --source $datapath --project Frontier --group CUB_ROADMAP --seed 3
python main.py --config roadmap_r50_cub200 --source $datapath --project Frontier --group CUB_ROADMAP --seed 4

# CUB_S2SD, S2SD (R50): published R@1 70.1 (ResNet-50, 512 dimensions)
python main.py --config s2sd_r50_cub200 --source $datapath --project Frontier --group CUB_S2SD --seed 0
python main.py --config s2sd_r50_cub200 --source $datapath --project Frontier --group CUB_S2SD --seed 1
python main.py --config s2sd_r50_cub200 --source $datapath --project Frontier --group CUB_S2SD --seed 2
python main.py --config s2sd_r50_cub200 --source $datapath --project Frontier --group CUB_S2SD --seed 3
python main.py --config s2sd_r50_cub200 --source $datapath --project Frontier --group CUB_S2SD --seed 4

# CUB_DiVA, DiVA (R50): published R@1 69.2 (ResNet-50, 4 x 128 dimensions)
python main.py --config diva_r50_cub200 --source $datapath --project Frontier --group CUB_DiVA --seed 0
python main.py --config diva_r50_cub200 --source $datapath --project Frontier --group CUB_DiVA --seed 1
python main.py --config diva_r50_cub200 --source $datapath --project Frontier --group CUB_DiVA --seed 2
python main.py --config diva_r50_cub200 --source $datapath --project Frontier --group CUB_DiVA --seed 3
python main.py --config diva_r50_cub200 --source $datapath --project Frontier --group CUB_DiVA --seed 4

# CUB_DMLCE, Cross-entropy: published R@1 69.2 (ResNet-50, 2048 dimensions)
python main.py --config dml_ce_cub200 --source $datapath --project Frontier --group CUB_DMLCE --seed 0
python main.py --config dml_ce_cub200 --source $datapath --project Frontier --group CUB_DMLCE --seed 1
python main.py --config dml_ce_cub200 --source $datapath --project Frontier --group CUB_DMLCE --seed 2
python main.py --config dml_ce_cub200 --source $datapath --project Frontier --group CUB_DMLCE --seed 3
python main.py --config dml_ce_cub200 --source $datapath --project Frontier --group CUB_DMLCE --seed 4

# CUB_FastRetri, FastRetri: published R@1 69.46 (ResNet-50, last stride 1, 2048 dimensions)
python main.py --config fastretri_cub200 --source $datapath --project Frontier --group CUB_FastRetri --seed 0
python main.py --config fastretri_cub200 --source $datapath --project Frontier --group CUB_FastRetri --seed 1
python main.py --config fastretri_cub200 --source $datapath --project Frontier --group CUB_FastRetri --seed 2
python main.py --config fastretri_cub200 --source $datapath --project Frontier --group CUB_FastRetri --seed 3
python main.py --config fastretri_cub200 --source $datapath --project Frontier --group CUB_FastRetri --seed 4

# CUB_MeanField, Mean field (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config meanfield_r50_cub200 --source $datapath --project Frontier --group CUB_MeanField --seed 0
python main.py --config meanfield_r50_cub200 --source $datapath --project Frontier --group CUB_MeanField --seed 1
python main.py --config meanfield_r50_cub200 --source $datapath --project Frontier --group CUB_MeanField --seed 2
python main.py --config meanfield_r50_cub200 --source $datapath --project Frontier --group CUB_MeanField --seed 3
python main.py --config meanfield_r50_cub200 --source $datapath --project Frontier --group CUB_MeanField --seed 4

# CUB_AntiCo, AntiCo (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config anticollapse_r50_cub200 --source $datapath --project Frontier --group CUB_AntiCo --seed 0
python main.py --config anticollapse_r50_cub200 --source $datapath --project Frontier --group CUB_AntiCo --seed 1
python main.py --config anticollapse_r50_cub200 --source $datapath --project Frontier --group CUB_AntiCo --seed 2
python main.py --config anticollapse_r50_cub200 --source $datapath --project Frontier --group CUB_AntiCo --seed 3
python main.py --config anticollapse_r50_cub200 --source $datapath --project Frontier --group CUB_AntiCo --seed 4

# CUB_HIST, HIST (R50): published R@1 71.4 (ResNet-50, 512 dimensions)
python main.py --config hist_r50_cub200 --source $datapath --project Frontier --group CUB_HIST --seed 0
python main.py --config hist_r50_cub200 --source $datapath --project Frontier --group CUB_HIST --seed 1
python main.py --config hist_r50_cub200 --source $datapath --project Frontier --group CUB_HIST --seed 2
python main.py --config hist_r50_cub200 --source $datapath --project Frontier --group CUB_HIST --seed 3
python main.py --config hist_r50_cub200 --source $datapath --project Frontier --group CUB_HIST --seed 4

# CUB_Contextual, Contextual similarity (R50): published R@1 71.9 (ResNet-50, 512 dimensions)
python main.py --config contextual_r50_cub200 --source $datapath --project Frontier --group CUB_Contextual --seed 0
python main.py --config contextual_r50_cub200 --source $datapath --project Frontier --group CUB_Contextual --seed 1
python main.py --config contextual_r50_cub200 --source $datapath --project Frontier --group CUB_Contextual --seed 2
python main.py --config contextual_r50_cub200 --source $datapath --project Frontier --group CUB_Contextual --seed 3
python main.py --config contextual_r50_cub200 --source $datapath --project Frontier --group CUB_Contextual --seed 4

# CUB_IntraBatch, Intra-batch connections (R50): published R@1 70.3 (ResNet-50, 512 dimensions)
python main.py --config intrabatch_r50_cub200 --source $datapath --project Frontier --group CUB_IntraBatch --seed 0
python main.py --config intrabatch_r50_cub200 --source $datapath --project Frontier --group CUB_IntraBatch --seed 1
python main.py --config intrabatch_r50_cub200 --source $datapath --project Frontier --group CUB_IntraBatch --seed 2
python main.py --config intrabatch_r50_cub200 --source $datapath --project Frontier --group CUB_IntraBatch --seed 3
python main.py --config intrabatch_r50_cub200 --source $datapath --project Frontier --group CUB_IntraBatch --seed 4

# CUB_PLG, Language guidance (PLG) (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config language_r50_cub200 --source $datapath --project Frontier --group CUB_PLG --seed 0
python main.py --config language_r50_cub200 --source $datapath --project Frontier --group CUB_PLG --seed 1
python main.py --config language_r50_cub200 --source $datapath --project Frontier --group CUB_PLG --seed 2
python main.py --config language_r50_cub200 --source $datapath --project Frontier --group CUB_PLG --seed 3
python main.py --config language_r50_cub200 --source $datapath --project Frontier --group CUB_PLG --seed 4

# CUB_Metrix, Metrix (R50): published R@1 71.4 (ResNet-50, 512 dimensions)
python main.py --config metrix_r50_cub200 --source $datapath --project Frontier --group CUB_Metrix --seed 0
python main.py --config metrix_r50_cub200 --source $datapath --project Frontier --group CUB_Metrix --seed 1
python main.py --config metrix_r50_cub200 --source $datapath --project Frontier --group CUB_Metrix --seed 2
python main.py --config metrix_r50_cub200 --source $datapath --project Frontier --group CUB_Metrix --seed 3
python main.py --config metrix_r50_cub200 --source $datapath --project Frontier --group CUB_Metrix --seed 4

# CUB_VPT, VPT-deep and BitFit (ViT-S/16): published R@1 unknown (ImageNet-21k ViT-S/16, 384 dimensions)
python main.py --config vpt_vits_cub200 --source $datapath --project Frontier --group CUB_VPT --seed 0
python main.py --config vpt_vits_cub200 --source $datapath --project Frontier --group CUB_VPT --seed 1
python main.py --config vpt_vits_cub200 --source $datapath --project Frontier --group CUB_VPT --seed 2
python main.py --config vpt_vits_cub200 --source $datapath --project Frontier --group CUB_VPT --seed 3
python main.py --config vpt_vits_cub200 --source $datapath --project Frontier --group CUB_VPT --seed 4

# ============================== cars196

# CARS_HypDINO, Hyp-DINO: published R@1 89.2 (DINO ViT-S/16, 384 dimensions)
python main.py --config hyp_dino_cars196 --source $datapath --project Frontier --group CARS_HypDINO --seed 0
python main.py --config hyp_dino_cars196 --source $datapath --project Frontier --group CARS_HypDINO --seed 1
python main.py --config hyp_dino_cars196 --source $datapath --project Frontier --group CARS_HypDINO --seed 2
python main.py --config hyp_dino_cars196 --source $datapath --project Frontier --group CARS_HypDINO --seed 3
python main.py --config hyp_dino_cars196 --source $datapath --project Frontier --group CARS_HypDINO --seed 4

# CARS_HIER, HIER (DINO): published R@1 91.3 (DINO ViT-S/16, 384 dimensions)
python main.py --config hier_dino_cars196 --source $datapath --project Frontier --group CARS_HIER --seed 0
python main.py --config hier_dino_cars196 --source $datapath --project Frontier --group CARS_HIER --seed 1
python main.py --config hier_dino_cars196 --source $datapath --project Frontier --group CARS_HIER --seed 2
python main.py --config hier_dino_cars196 --source $datapath --project Frontier --group CARS_HIER --seed 3
python main.py --config hier_dino_cars196 --source $datapath --project Frontier --group CARS_HIER --seed 4

# CARS_ProxyAnchor, Proxy-Anchor (R50): published R@1 87.7 (ResNet-50, 512 dimensions)
python main.py --config proxyanchor_r50_cars196 --source $datapath --project Frontier --group CARS_ProxyAnchor --seed 0
python main.py --config proxyanchor_r50_cars196 --source $datapath --project Frontier --group CARS_ProxyAnchor --seed 1
python main.py --config proxyanchor_r50_cars196 --source $datapath --project Frontier --group CARS_ProxyAnchor --seed 2
python main.py --config proxyanchor_r50_cars196 --source $datapath --project Frontier --group CARS_ProxyAnchor --seed 3
python main.py --config proxyanchor_r50_cars196 --source $datapath --project Frontier --group CARS_ProxyAnchor --seed 4

# CARS_RecallatK, Recall@k surrogate (R50): published R@1 88.3 (ResNet-50, 512 dimensions)
python main.py --config recallatk_r50_cars196 --source $datapath --project Frontier --group CARS_RecallatK --seed 0
python main.py --config recallatk_r50_cars196 --source $datapath --project Frontier --group CARS_RecallatK --seed 1
python main.py --config recallatk_r50_cars196 --source $datapath --project Frontier --group CARS_RecallatK --seed 2
python main.py --config recallatk_r50_cars196 --source $datapath --project Frontier --group CARS_RecallatK --seed 3
python main.py --config recallatk_r50_cars196 --source $datapath --project Frontier --group CARS_RecallatK --seed 4

# CARS_S2SD, S2SD (R50): published R@1 89.5 (ResNet-50, 512 dimensions)
python main.py --config s2sd_r50_cars196 --source $datapath --project Frontier --group CARS_S2SD --seed 0
python main.py --config s2sd_r50_cars196 --source $datapath --project Frontier --group CARS_S2SD --seed 1
python main.py --config s2sd_r50_cars196 --source $datapath --project Frontier --group CARS_S2SD --seed 2
python main.py --config s2sd_r50_cars196 --source $datapath --project Frontier --group CARS_S2SD --seed 3
python main.py --config s2sd_r50_cars196 --source $datapath --project Frontier --group CARS_S2SD --seed 4

# CARS_DiVA, DiVA (R50): published R@1 87.6 (ResNet-50, 4 x 128 dimensions)
python main.py --config diva_r50_cars196 --source $datapath --project Frontier --group CARS_DiVA --seed 0
python main.py --config diva_r50_cars196 --source $datapath --project Frontier --group CARS_DiVA --seed 1
python main.py --config diva_r50_cars196 --source $datapath --project Frontier --group CARS_DiVA --seed 2
python main.py --config diva_r50_cars196 --source $datapath --project Frontier --group CARS_DiVA --seed 3
python main.py --config diva_r50_cars196 --source $datapath --project Frontier --group CARS_DiVA --seed 4

# CARS_DMLCE, Cross-entropy: published R@1 89.3 (ResNet-50, 2048 dimensions)
python main.py --config dml_ce_cars196 --source $datapath --project Frontier --group CARS_DMLCE --seed 0
python main.py --config dml_ce_cars196 --source $datapath --project Frontier --group CARS_DMLCE --seed 1
python main.py --config dml_ce_cars196 --source $datapath --project Frontier --group CARS_DMLCE --seed 2
python main.py --config dml_ce_cars196 --source $datapath --project Frontier --group CARS_DMLCE --seed 3
python main.py --config dml_ce_cars196 --source $datapath --project Frontier --group CARS_DMLCE --seed 4

# CARS_FastRetri, FastRetri: published R@1 92.31 (ResNet-50, last stride 1, 2048 dimensions)
python main.py --config fastretri_cars196 --source $datapath --project Frontier --group CARS_FastRetri --seed 0
python main.py --config fastretri_cars196 --source $datapath --project Frontier --group CARS_FastRetri --seed 1
python main.py --config fastretri_cars196 --source $datapath --project Frontier --group CARS_FastRetri --seed 2
python main.py --config fastretri_cars196 --source $datapath --project Frontier --group CARS_FastRetri --seed 3
python main.py --config fastretri_cars196 --source $datapath --project Frontier --group CARS_FastRetri --seed 4

# CARS_MeanField, Mean field (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config meanfield_r50_cars196 --source $datapath --project Frontier --group CARS_MeanField --seed 0
python main.py --config meanfield_r50_cars196 --source $datapath --project Frontier --group CARS_MeanField --seed 1
python main.py --config meanfield_r50_cars196 --source $datapath --project Frontier --group CARS_MeanField --seed 2
python main.py --config meanfield_r50_cars196 --source $datapath --project Frontier --group CARS_MeanField --seed 3
python main.py --config meanfield_r50_cars196 --source $datapath --project Frontier --group CARS_MeanField --seed 4

# CARS_AntiCo, AntiCo (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config anticollapse_r50_cars196 --source $datapath --project Frontier --group CARS_AntiCo --seed 0
python main.py --config anticollapse_r50_cars196 --source $datapath --project Frontier --group CARS_AntiCo --seed 1
python main.py --config anticollapse_r50_cars196 --source $datapath --project Frontier --group CARS_AntiCo --seed 2
python main.py --config anticollapse_r50_cars196 --source $datapath --project Frontier --group CARS_AntiCo --seed 3
python main.py --config anticollapse_r50_cars196 --source $datapath --project Frontier --group CARS_AntiCo --seed 4

# CARS_HIST, HIST (R50): published R@1 89.6 (ResNet-50, 512 dimensions)
python main.py --config hist_r50_cars196 --source $datapath --project Frontier --group CARS_HIST --seed 0
python main.py --config hist_r50_cars196 --source $datapath --project Frontier --group CARS_HIST --seed 1
python main.py --config hist_r50_cars196 --source $datapath --project Frontier --group CARS_HIST --seed 2
python main.py --config hist_r50_cars196 --source $datapath --project Frontier --group CARS_HIST --seed 3
python main.py --config hist_r50_cars196 --source $datapath --project Frontier --group CARS_HIST --seed 4

# CARS_Contextual, Contextual similarity (R50): published R@1 91.1 (ResNet-50, 512 dimensions)
python main.py --config contextual_r50_cars196 --source $datapath --project Frontier --group CARS_Contextual --seed 0
python main.py --config contextual_r50_cars196 --source $datapath --project Frontier --group CARS_Contextual --seed 1
python main.py --config contextual_r50_cars196 --source $datapath --project Frontier --group CARS_Contextual --seed 2
python main.py --config contextual_r50_cars196 --source $datapath --project Frontier --group CARS_Contextual --seed 3
python main.py --config contextual_r50_cars196 --source $datapath --project Frontier --group CARS_Contextual --seed 4

# CARS_IntraBatch, Intra-batch connections (R50): published R@1 88.1 (ResNet-50, 512 dimensions)
python main.py --config intrabatch_r50_cars196 --source $datapath --project Frontier --group CARS_IntraBatch --seed 0
python main.py --config intrabatch_r50_cars196 --source $datapath --project Frontier --group CARS_IntraBatch --seed 1
python main.py --config intrabatch_r50_cars196 --source $datapath --project Frontier --group CARS_IntraBatch --seed 2
python main.py --config intrabatch_r50_cars196 --source $datapath --project Frontier --group CARS_IntraBatch --seed 3
python main.py --config intrabatch_r50_cars196 --source $datapath --project Frontier --group CARS_IntraBatch --seed 4

# CARS_PLG, Language guidance (PLG) (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config language_r50_cars196 --source $datapath --project Frontier --group CARS_PLG --seed 0
python main.py --config language_r50_cars196 --source $datapath --project Frontier --group CARS_PLG --seed 1
python main.py --config language_r50_cars196 --source $datapath --project Frontier --group CARS_PLG --seed 2
python main.py --config language_r50_cars196 --source $datapath --project Frontier --group CARS_PLG --seed 3
python main.py --config language_r50_cars196 --source $datapath --project Frontier --group CARS_PLG --seed 4

# CARS_Metrix, Metrix (R50): published R@1 89.6 (ResNet-50, 512 dimensions)
python main.py --config metrix_r50_cars196 --source $datapath --project Frontier --group CARS_Metrix --seed 0
python main.py --config metrix_r50_cars196 --source $datapath --project Frontier --group CARS_Metrix --seed 1
python main.py --config metrix_r50_cars196 --source $datapath --project Frontier --group CARS_Metrix --seed 2
python main.py --config metrix_r50_cars196 --source $datapath --project Frontier --group CARS_Metrix --seed 3
python main.py --config metrix_r50_cars196 --source $datapath --project Frontier --group CARS_Metrix --seed 4

# CARS_VPT, VPT-deep and BitFit (ViT-S/16): published R@1 unknown (ImageNet-21k ViT-S/16, 384 dimensions)
python main.py --config vpt_vits_cars196 --source $datapath --project Frontier --group CARS_VPT --seed 0
python main.py --config vpt_vits_cars196 --source $datapath --project Frontier --group CARS_VPT --seed 1
python main.py --config vpt_vits_cars196 --source $datapath --project Frontier --group CARS_VPT --seed 2
python main.py --config vpt_vits_cars196 --source $datapath --project Frontier --group CARS_VPT --seed 3
python main.py --config vpt_vits_cars196 --source $datapath --project Frontier --group CARS_VPT --seed 4

# ============================== online_products

# SOP_HypDINO, Hyp-DINO: published R@1 85.1 (DINO ViT-S/16, 384 dimensions)
python main.py --config hyp_dino_online_products --source $datapath --project Frontier --group SOP_HypDINO --seed 0
python main.py --config hyp_dino_online_products --source $datapath --project Frontier --group SOP_HypDINO --seed 1
python main.py --config hyp_dino_online_products --source $datapath --project Frontier --group SOP_HypDINO --seed 2
python main.py --config hyp_dino_online_products --source $datapath --project Frontier --group SOP_HypDINO --seed 3
python main.py --config hyp_dino_online_products --source $datapath --project Frontier --group SOP_HypDINO --seed 4

# SOP_HIER, HIER (DINO): published R@1 85.7 (DINO ViT-S/16, 384 dimensions)
python main.py --config hier_dino_online_products --source $datapath --project Frontier --group SOP_HIER --seed 0
python main.py --config hier_dino_online_products --source $datapath --project Frontier --group SOP_HIER --seed 1
python main.py --config hier_dino_online_products --source $datapath --project Frontier --group SOP_HIER --seed 2
python main.py --config hier_dino_online_products --source $datapath --project Frontier --group SOP_HIER --seed 3
python main.py --config hier_dino_online_products --source $datapath --project Frontier --group SOP_HIER --seed 4

# SOP_ProxyAnchor, Proxy-Anchor (BN-Inception): published R@1 79.2 (BN-Inception, 512 dimensions)
python main.py --config proxyanchor_bninception_online_products --source $datapath --project Frontier --group SOP_ProxyAnchor --seed 0
python main.py --config proxyanchor_bninception_online_products --source $datapath --project Frontier --group SOP_ProxyAnchor --seed 1
python main.py --config proxyanchor_bninception_online_products --source $datapath --project Frontier --group SOP_ProxyAnchor --seed 2
python main.py --config proxyanchor_bninception_online_products --source $datapath --project Frontier --group SOP_ProxyAnchor --seed 3
python main.py --config proxyanchor_bninception_online_products --source $datapath --project Frontier --group SOP_ProxyAnchor --seed 4

# SOP_RecallatK, Recall@k surrogate (R50): published R@1 82.7 (ResNet-50, 512 dimensions)
python main.py --config recallatk_r50_online_products --source $datapath --project Frontier --group SOP_RecallatK --seed 0
python main.py --config recallatk_r50_online_products --source $datapath --project Frontier --group SOP_RecallatK --seed 1
python main.py --config recallatk_r50_online_products --source $datapath --project Frontier --group SOP_RecallatK --seed 2
python main.py --config recallatk_r50_online_products --source $datapath --project Frontier --group SOP_RecallatK --seed 3
python main.py --config recallatk_r50_online_products --source $datapath --project Frontier --group SOP_RecallatK --seed 4

# SOP_HAPPIER, HAPPIER (R50): published R@1 81.0 (ResNet-50, 512 dimensions)
python main.py --config happier_r50_online_products --source $datapath --project Frontier --group SOP_HAPPIER --seed 0
python main.py --config happier_r50_online_products --source $datapath --project Frontier --group SOP_HAPPIER --seed 1
python main.py --config happier_r50_online_products --source $datapath --project Frontier --group SOP_HAPPIER --seed 2
python main.py --config happier_r50_online_products --source $datapath --project Frontier --group SOP_HAPPIER --seed 3
python main.py --config happier_r50_online_products --source $datapath --project Frontier --group SOP_HAPPIER --seed 4

# SOP_ROADMAP, ROADMAP (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config roadmap_r50_online_products --source $datapath --project Frontier --group SOP_ROADMAP --seed 0
python main.py --config roadmap_r50_online_products --source $datapath --project Frontier --group SOP_ROADMAP --seed 1
python main.py --config roadmap_r50_online_products --source $datapath --project Frontier --group SOP_ROADMAP --seed 2
python main.py --config roadmap_r50_online_products --source $datapath --project Frontier --group SOP_ROADMAP --seed 3
python main.py --config roadmap_r50_online_products --source $datapath --project Frontier --group SOP_ROADMAP --seed 4

# SOP_S2SD, S2SD (R50): published R@1 81.0 (ResNet-50, 512 dimensions)
python main.py --config s2sd_r50_online_products --source $datapath --project Frontier --group SOP_S2SD --seed 0
python main.py --config s2sd_r50_online_products --source $datapath --project Frontier --group SOP_S2SD --seed 1
python main.py --config s2sd_r50_online_products --source $datapath --project Frontier --group SOP_S2SD --seed 2
python main.py --config s2sd_r50_online_products --source $datapath --project Frontier --group SOP_S2SD --seed 3
python main.py --config s2sd_r50_online_products --source $datapath --project Frontier --group SOP_S2SD --seed 4

# SOP_DiVA, DiVA (R50): published R@1 79.6 (ResNet-50, 4 x 128 dimensions)
python main.py --config diva_r50_online_products --source $datapath --project Frontier --group SOP_DiVA --seed 0
python main.py --config diva_r50_online_products --source $datapath --project Frontier --group SOP_DiVA --seed 1
python main.py --config diva_r50_online_products --source $datapath --project Frontier --group SOP_DiVA --seed 2
python main.py --config diva_r50_online_products --source $datapath --project Frontier --group SOP_DiVA --seed 3
python main.py --config diva_r50_online_products --source $datapath --project Frontier --group SOP_DiVA --seed 4

# SOP_XBM, XBM (R50): published R@1 80.6 (ResNet-50, 128 dimensions)
python main.py --config xbm_sop --source $datapath --project Frontier --group SOP_XBM --seed 0
python main.py --config xbm_sop --source $datapath --project Frontier --group SOP_XBM --seed 1
python main.py --config xbm_sop --source $datapath --project Frontier --group SOP_XBM --seed 2
python main.py --config xbm_sop --source $datapath --project Frontier --group SOP_XBM --seed 3
python main.py --config xbm_sop --source $datapath --project Frontier --group SOP_XBM --seed 4

# SOP_DMLCE, Cross-entropy: published R@1 81.1 (ResNet-50, 2048 dimensions)
python main.py --config dml_ce_online_products --source $datapath --project Frontier --group SOP_DMLCE --seed 0
python main.py --config dml_ce_online_products --source $datapath --project Frontier --group SOP_DMLCE --seed 1
python main.py --config dml_ce_online_products --source $datapath --project Frontier --group SOP_DMLCE --seed 2
python main.py --config dml_ce_online_products --source $datapath --project Frontier --group SOP_DMLCE --seed 3
python main.py --config dml_ce_online_products --source $datapath --project Frontier --group SOP_DMLCE --seed 4

# SOP_FastRetri, FastRetri: published R@1 82.46 (ResNet-50, last stride 1, 2048 dimensions)
python main.py --config fastretri_online_products --source $datapath --project Frontier --group SOP_FastRetri --seed 0
python main.py --config fastretri_online_products --source $datapath --project Frontier --group SOP_FastRetri --seed 1
python main.py --config fastretri_online_products --source $datapath --project Frontier --group SOP_FastRetri --seed 2
python main.py --config fastretri_online_products --source $datapath --project Frontier --group SOP_FastRetri --seed 3
python main.py --config fastretri_online_products --source $datapath --project Frontier --group SOP_FastRetri --seed 4

# SOP_UNICOM, UNICOM: published R@1 88.8 (UNICOM ViT-B/16, 768 dimensions)
python main.py --config unicom_sop --source $datapath --project Frontier --group SOP_UNICOM --seed 0
python main.py --config unicom_sop --source $datapath --project Frontier --group SOP_UNICOM --seed 1
python main.py --config unicom_sop --source $datapath --project Frontier --group SOP_UNICOM --seed 2
python main.py --config unicom_sop --source $datapath --project Frontier --group SOP_UNICOM --seed 3
python main.py --config unicom_sop --source $datapath --project Frontier --group SOP_UNICOM --seed 4

# SOP_HIST, HIST (R50): published R@1 81.4 (ResNet-50, 512 dimensions)
python main.py --config hist_r50_online_products --source $datapath --project Frontier --group SOP_HIST --seed 0
python main.py --config hist_r50_online_products --source $datapath --project Frontier --group SOP_HIST --seed 1
python main.py --config hist_r50_online_products --source $datapath --project Frontier --group SOP_HIST --seed 2
python main.py --config hist_r50_online_products --source $datapath --project Frontier --group SOP_HIST --seed 3
python main.py --config hist_r50_online_products --source $datapath --project Frontier --group SOP_HIST --seed 4

# SOP_Contextual, Contextual similarity (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config contextual_r50_online_products --source $datapath --project Frontier --group SOP_Contextual --seed 0
python main.py --config contextual_r50_online_products --source $datapath --project Frontier --group SOP_Contextual --seed 1
python main.py --config contextual_r50_online_products --source $datapath --project Frontier --group SOP_Contextual --seed 2
python main.py --config contextual_r50_online_products --source $datapath --project Frontier --group SOP_Contextual --seed 3
python main.py --config contextual_r50_online_products --source $datapath --project Frontier --group SOP_Contextual --seed 4

# SOP_IntraBatch, Intra-batch connections (R50): published R@1 81.4 (ResNet-50, 512 dimensions)
python main.py --config intrabatch_r50_online_products --source $datapath --project Frontier --group SOP_IntraBatch --seed 0
python main.py --config intrabatch_r50_online_products --source $datapath --project Frontier --group SOP_IntraBatch --seed 1
python main.py --config intrabatch_r50_online_products --source $datapath --project Frontier --group SOP_IntraBatch --seed 2
python main.py --config intrabatch_r50_online_products --source $datapath --project Frontier --group SOP_IntraBatch --seed 3
python main.py --config intrabatch_r50_online_products --source $datapath --project Frontier --group SOP_IntraBatch --seed 4

# SOP_Metrix, Metrix (R50): published R@1 81.0 (ResNet-50, 512 dimensions)
python main.py --config metrix_r50_online_products --source $datapath --project Frontier --group SOP_Metrix --seed 0
python main.py --config metrix_r50_online_products --source $datapath --project Frontier --group SOP_Metrix --seed 1
python main.py --config metrix_r50_online_products --source $datapath --project Frontier --group SOP_Metrix --seed 2
python main.py --config metrix_r50_online_products --source $datapath --project Frontier --group SOP_Metrix --seed 3
python main.py --config metrix_r50_online_products --source $datapath --project Frontier --group SOP_Metrix --seed 4

# SOP_VPT, VPT-deep and BitFit (ViT-S/16): published R@1 unknown (ImageNet-21k ViT-S/16, 384 dimensions)
python main.py --config vpt_vits_online_products --source $datapath --project Frontier --group SOP_VPT --seed 0
python main.py --config vpt_vits_online_products --source $datapath --project Frontier --group SOP_VPT --seed 1
python main.py --config vpt_vits_online_products --source $datapath --project Frontier --group SOP_VPT --seed 2
python main.py --config vpt_vits_online_products --source $datapath --project Frontier --group SOP_VPT --seed 3
python main.py --config vpt_vits_online_products --source $datapath --project Frontier --group SOP_VPT --seed 4

# ============================== inshop

# INSHOP_HypDINO, Hyp-DINO: published R@1 92.4 (DINO ViT-S/16, 384 dimensions)
python main.py --config hyp_dino_inshop --source $datapath --project Frontier --group INSHOP_HypDINO --seed 0
python main.py --config hyp_dino_inshop --source $datapath --project Frontier --group INSHOP_HypDINO --seed 1
python main.py --config hyp_dino_inshop --source $datapath --project Frontier --group INSHOP_HypDINO --seed 2
python main.py --config hyp_dino_inshop --source $datapath --project Frontier --group INSHOP_HypDINO --seed 3
python main.py --config hyp_dino_inshop --source $datapath --project Frontier --group INSHOP_HypDINO --seed 4

# INSHOP_HIER, HIER (DINO): published R@1 92.5 (DINO ViT-S/16, 384 dimensions)
python main.py --config hier_dino_inshop --source $datapath --project Frontier --group INSHOP_HIER --seed 0
python main.py --config hier_dino_inshop --source $datapath --project Frontier --group INSHOP_HIER --seed 1
python main.py --config hier_dino_inshop --source $datapath --project Frontier --group INSHOP_HIER --seed 2
python main.py --config hier_dino_inshop --source $datapath --project Frontier --group INSHOP_HIER --seed 3
python main.py --config hier_dino_inshop --source $datapath --project Frontier --group INSHOP_HIER --seed 4

# INSHOP_ProxyAnchor, Proxy-Anchor (BN-Inception): published R@1 91.9 (BN-Inception, 512 dimensions)
python main.py --config proxyanchor_bninception_inshop --source $datapath --project Frontier --group INSHOP_ProxyAnchor --seed 0
python main.py --config proxyanchor_bninception_inshop --source $datapath --project Frontier --group INSHOP_ProxyAnchor --seed 1
python main.py --config proxyanchor_bninception_inshop --source $datapath --project Frontier --group INSHOP_ProxyAnchor --seed 2
python main.py --config proxyanchor_bninception_inshop --source $datapath --project Frontier --group INSHOP_ProxyAnchor --seed 3
python main.py --config proxyanchor_bninception_inshop --source $datapath --project Frontier --group INSHOP_ProxyAnchor --seed 4

# INSHOP_DMLCE, Cross-entropy: published R@1 90.6 (ResNet-50, 2048 dimensions)
python main.py --config dml_ce_inshop --source $datapath --project Frontier --group INSHOP_DMLCE --seed 0
python main.py --config dml_ce_inshop --source $datapath --project Frontier --group INSHOP_DMLCE --seed 1
python main.py --config dml_ce_inshop --source $datapath --project Frontier --group INSHOP_DMLCE --seed 2
python main.py --config dml_ce_inshop --source $datapath --project Frontier --group INSHOP_DMLCE --seed 3
python main.py --config dml_ce_inshop --source $datapath --project Frontier --group INSHOP_DMLCE --seed 4

# INSHOP_FastRetri, FastRetri: published R@1 91.97 (ResNet-50, last stride 1, 2048 dimensions)
python main.py --config fastretri_inshop --source $datapath --project Frontier --group INSHOP_FastRetri --seed 0
python main.py --config fastretri_inshop --source $datapath --project Frontier --group INSHOP_FastRetri --seed 1
python main.py --config fastretri_inshop --source $datapath --project Frontier --group INSHOP_FastRetri --seed 2
python main.py --config fastretri_inshop --source $datapath --project Frontier --group INSHOP_FastRetri --seed 3
python main.py --config fastretri_inshop --source $datapath --project Frontier --group INSHOP_FastRetri --seed 4

# INSHOP_UNICOM, UNICOM: published R@1 95.5 (UNICOM ViT-B/16, 768 dimensions)
python main.py --config unicom_inshop --source $datapath --project Frontier --group INSHOP_UNICOM --seed 0
python main.py --config unicom_inshop --source $datapath --project Frontier --group INSHOP_UNICOM --seed 1
python main.py --config unicom_inshop --source $datapath --project Frontier --group INSHOP_UNICOM --seed 2
python main.py --config unicom_inshop --source $datapath --project Frontier --group INSHOP_UNICOM --seed 3
python main.py --config unicom_inshop --source $datapath --project Frontier --group INSHOP_UNICOM --seed 4

# INSHOP_IntraBatch, Intra-batch connections (R50): published R@1 92.8 (ResNet-50, 512 dimensions)
python main.py --config intrabatch_r50_inshop --source $datapath --project Frontier --group INSHOP_IntraBatch --seed 0
python main.py --config intrabatch_r50_inshop --source $datapath --project Frontier --group INSHOP_IntraBatch --seed 1
python main.py --config intrabatch_r50_inshop --source $datapath --project Frontier --group INSHOP_IntraBatch --seed 2
python main.py --config intrabatch_r50_inshop --source $datapath --project Frontier --group INSHOP_IntraBatch --seed 3
python main.py --config intrabatch_r50_inshop --source $datapath --project Frontier --group INSHOP_IntraBatch --seed 4

# INSHOP_Metrix, Metrix (R50): published R@1 92.2 (ResNet-50, 512 dimensions)
python main.py --config metrix_r50_inshop --source $datapath --project Frontier --group INSHOP_Metrix --seed 0
python main.py --config metrix_r50_inshop --source $datapath --project Frontier --group INSHOP_Metrix --seed 1
python main.py --config metrix_r50_inshop --source $datapath --project Frontier --group INSHOP_Metrix --seed 2
python main.py --config metrix_r50_inshop --source $datapath --project Frontier --group INSHOP_Metrix --seed 3
python main.py --config metrix_r50_inshop --source $datapath --project Frontier --group INSHOP_Metrix --seed 4

# INSHOP_VPT, VPT-deep and BitFit (ViT-S/16): published R@1 unknown (ImageNet-21k ViT-S/16, 384 dimensions)
python main.py --config vpt_vits_inshop --source $datapath --project Frontier --group INSHOP_VPT --seed 0
python main.py --config vpt_vits_inshop --source $datapath --project Frontier --group INSHOP_VPT --seed 1
python main.py --config vpt_vits_inshop --source $datapath --project Frontier --group INSHOP_VPT --seed 2
python main.py --config vpt_vits_inshop --source $datapath --project Frontier --group INSHOP_VPT --seed 3
python main.py --config vpt_vits_inshop --source $datapath --project Frontier --group INSHOP_VPT --seed 4

# ============================== market1501

# MARKET_BoT, Bag of Tricks: published R@1 94.4 (ResNet-50, last stride 1, 2048 dimensions)
python main.py --config bot_market1501 --source $datapath --project Frontier --group MARKET_BoT --seed 0
python main.py --config bot_market1501 --source $datapath --project Frontier --group MARKET_BoT --seed 1
python main.py --config bot_market1501 --source $datapath --project Frontier --group MARKET_BoT --seed 2
python main.py --config bot_market1501 --source $datapath --project Frontier --group MARKET_BoT --seed 3
python main.py --config bot_market1501 --source $datapath --project Frontier --group MARKET_BoT --seed 4

# MARKET_SBS, SBS: published R@1 95.4 (ResNet-50 with non-local blocks, 2048 dimensions)
python main.py --config sbs_market1501 --source $datapath --project Frontier --group MARKET_SBS --seed 0
python main.py --config sbs_market1501 --source $datapath --project Frontier --group MARKET_SBS --seed 1
python main.py --config sbs_market1501 --source $datapath --project Frontier --group MARKET_SBS --seed 2
python main.py --config sbs_market1501 --source $datapath --project Frontier --group MARKET_SBS --seed 3
python main.py --config sbs_market1501 --source $datapath --project Frontier --group MARKET_SBS --seed 4

# MARKET_OSNet, OSNet: published R@1 94.2 (OSNet x1.0, 512 dimensions)
python main.py --config osnet_x1_0_market1501 --source $datapath --project Frontier --group MARKET_OSNet --seed 0
python main.py --config osnet_x1_0_market1501 --source $datapath --project Frontier --group MARKET_OSNet --seed 1
python main.py --config osnet_x1_0_market1501 --source $datapath --project Frontier --group MARKET_OSNet --seed 2
python main.py --config osnet_x1_0_market1501 --source $datapath --project Frontier --group MARKET_OSNet --seed 3
python main.py --config osnet_x1_0_market1501 --source $datapath --project Frontier --group MARKET_OSNet --seed 4

# MARKET_OSNet_x0_25, OSNet: published R@1 91.2 (OSNet x0.25, 512 dimensions)
python main.py --config osnet_x0_25_market1501 --source $datapath --project Frontier --group MARKET_OSNet_x0_25 --seed 0
python main.py --config osnet_x0_25_market1501 --source $datapath --project Frontier --group MARKET_OSNet_x0_25 --seed 1
python main.py --config osnet_x0_25_market1501 --source $datapath --project Frontier --group MARKET_OSNet_x0_25 --seed 2
python main.py --config osnet_x0_25_market1501 --source $datapath --project Frontier --group MARKET_OSNet_x0_25 --seed 3
python main.py --config osnet_x0_25_market1501 --source $datapath --project Frontier --group MARKET_OSNet_x0_25 --seed 4

# MARKET_ViT, ViT as in TransReID: published R@1 unknown (ViT-B/16 at a stride of 12, 768 dimensions)
python main.py --config transreid_market1501 --source $datapath --project Frontier --group MARKET_ViT --seed 0
python main.py --config transreid_market1501 --source $datapath --project Frontier --group MARKET_ViT --seed 1
python main.py --config transreid_market1501 --source $datapath --project Frontier --group MARKET_ViT --seed 2
python main.py --config transreid_market1501 --source $datapath --project Frontier --group MARKET_ViT --seed 3
python main.py --config transreid_market1501 --source $datapath --project Frontier --group MARKET_ViT --seed 4

# ============================== msmt17

# MSMT17_ViT, ViT as in TransReID: published R@1 unknown (ViT-B/16 at a stride of 12, 768 dimensions)
python main.py --config transreid_msmt17 --source $datapath --project Frontier --group MSMT17_ViT --seed 0
python main.py --config transreid_msmt17 --source $datapath --project Frontier --group MSMT17_ViT --seed 1
python main.py --config transreid_msmt17 --source $datapath --project Frontier --group MSMT17_ViT --seed 2
python main.py --config transreid_msmt17 --source $datapath --project Frontier --group MSMT17_ViT --seed 3
python main.py --config transreid_msmt17 --source $datapath --project Frontier --group MSMT17_ViT --seed 4

# ============================== inaturalist2018

# INAT_HAPPIER, HAPPIER (R50): published R@1 70.7 (ResNet-50, 512 dimensions)
python main.py --config happier_r50_inaturalist2018 --source $datapath --project Frontier --group INAT_HAPPIER --seed 0
python main.py --config happier_r50_inaturalist2018 --source $datapath --project Frontier --group INAT_HAPPIER --seed 1
python main.py --config happier_r50_inaturalist2018 --source $datapath --project Frontier --group INAT_HAPPIER --seed 2
python main.py --config happier_r50_inaturalist2018 --source $datapath --project Frontier --group INAT_HAPPIER --seed 3
python main.py --config happier_r50_inaturalist2018 --source $datapath --project Frontier --group INAT_HAPPIER --seed 4

# INAT_ROADMAP, ROADMAP (R50): published R@1 unknown (ResNet-50, 512 dimensions)
python main.py --config roadmap_r50_inaturalist2018 --source $datapath --project Frontier --group INAT_ROADMAP --seed 0
python main.py --config roadmap_r50_inaturalist2018 --source $datapath --project Frontier --group INAT_ROADMAP --seed 1
python main.py --config roadmap_r50_inaturalist2018 --source $datapath --project Frontier --group INAT_ROADMAP --seed 2
python main.py --config roadmap_r50_inaturalist2018 --source $datapath --project Frontier --group INAT_ROADMAP --seed 3
python main.py --config roadmap_r50_inaturalist2018 --source $datapath --project Frontier --group INAT_ROADMAP --seed 4
