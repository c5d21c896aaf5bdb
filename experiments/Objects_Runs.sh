#!/bin/sh
# 8 losses with a small network from random weights on the objects' official split, x 3 seeds
#
# Results: docs/data.md#objects. `make objects-data` makes the data. With OMP_NUM_THREADS=1, the frozen networks, then these runs, seed after seed,
# then the rows and the table:
#   python -m evaluation models --dataset csv --dataset_csv Datasets/objects.csv --dataset_name objects --archs "timm:tf_efficientnet_lite0 --weights Datasets/efficientnet_lite0.safetensors --crop_size 128 --resize_size 128" "conv4 --not_pretrained --crop_size 64 --resize_size 64" --adapters linear --kernels 0 --seed 0 --evaluation_metrics e_recall@1 map_r --save_path Training_Results/objects_frozen
#   python -m launch experiments/Objects_Runs.sh --jobs 2
#   python -m experiments.study.raw --runs Training_Results --filter "^Objects_" --write experiments/objects/data_runs.csv
#   python -m experiments.objects.pages --frozen Training_Results/objects_frozen
datapath=${datapath:-./Datasets}  # the folder of `make objects-data`, without spaces

objects="--dataset csv --dataset_name objects --arch conv4_normalize --embed_dim 128 --augmentation base --resize_size 64 --crop_size 64 --crop_scale 0.4 1 --data_sampler class_balanced --bs 112 --samples_per_class 4 --n_epochs 2 --save_interval 2 --kernels 0 --plot_every 0 --no_train_metrics --evaluation_metrics e_recall@1 map_r"

python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Contrastive --seed 0 --loss contrastive --batch_mining distance --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Triplet --seed 0 --loss triplet --batch_mining distance --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Margin --seed 0 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_MS --seed 0 --loss multisimilarity --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Softmax --seed 0 --loss softmax --loss_softmax_lr 0.05 --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_ArcFace --seed 0 --loss arcface --loss_arcface_lr 0.05 --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_ProxyAnchor --seed 0 --loss proxyanchor --loss_proxyanchor_lrmulti 100 --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_SupCon --seed 0 --loss supcon --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Contrastive --seed 1 --loss contrastive --batch_mining distance --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Triplet --seed 1 --loss triplet --batch_mining distance --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Margin --seed 1 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_MS --seed 1 --loss multisimilarity --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Softmax --seed 1 --loss softmax --loss_softmax_lr 0.05 --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_ArcFace --seed 1 --loss arcface --loss_arcface_lr 0.05 --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_ProxyAnchor --seed 1 --loss proxyanchor --loss_proxyanchor_lrmulti 100 --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_SupCon --seed 1 --loss supcon --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Contrastive --seed 2 --loss contrastive --batch_mining distance --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Triplet --seed 2 --loss triplet --batch_mining distance --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Margin --seed 2 --loss margin --loss_margin_beta 0.6 --batch_mining distance --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_MS --seed 2 --loss multisimilarity --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_Softmax --seed 2 --loss softmax --loss_softmax_lr 0.05 --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_ArcFace --seed 2 --loss arcface --loss_arcface_lr 0.05 --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_ProxyAnchor --seed 2 --loss proxyanchor --loss_proxyanchor_lrmulti 100 --lr 0.001
python main.py $objects --dataset_csv $datapath/objects.csv --project Objects --group Objects_SupCon --seed 2 --loss supcon --lr 0.001
