#!/bin/sh
# A new network on the index of an old one: old, free, compatible x 3 seeds, on the objects' official split
#
# Both networks are a linear layer on a frozen EfficientNet-Lite0 that sees 40 x 40 pixels: the old one has 32 dimensions and 100 steps, the
# new ones 128 and 500, with another loss. Results: docs/tutorials/new_network_old_index.md. `make objects-data` makes the data, `make
# study-data` the weights. The old runs come first: the compatible ones embed the training images with them.
#   python -m launch experiments/New_Network_Runs.sh --jobs 1
datapath=${datapath:-./Datasets}  # the folder of both, without spaces

objects="--dataset csv --dataset_name objects --arch timm:tf_efficientnet_lite0_frozen_normalize --freeze_backbone --feature_cache --augmentation none --resize_mode squash --resize_size 40 --crop_size 40 --data_sampler class_balanced --bs 112 --samples_per_class 4 --iterations_per_epoch 100 --optim adam --lr 0.001 --decay 0.0004 --kernels 0 --eval_kernels 0 --eval_bs 256 --plot_every 0 --no_train_metrics --evaluation_metrics e_recall@1 map_r --dump_embeddings"

python main.py $objects --dataset_csv $datapath/objects.csv --weights $datapath/efficientnet_lite0.safetensors --project NewNetwork --group Old --seed 0 --embed_dim 32 --loss contrastive --batch_mining distance --n_epochs 1
python main.py $objects --dataset_csv $datapath/objects.csv --weights $datapath/efficientnet_lite0.safetensors --project NewNetwork --group Free --seed 0 --embed_dim 128 --loss multisimilarity --n_epochs 5 --save_interval 5
python main.py $objects --dataset_csv $datapath/objects.csv --weights $datapath/efficientnet_lite0.safetensors --project NewNetwork --group Points --seed 0 --embed_dim 128 --loss multisimilarity --n_epochs 5 --save_interval 5 --trainer compatible --compatible_with Training_Results/csv/Old_s0 --compatible_form points
python main.py $objects --dataset_csv $datapath/objects.csv --weights $datapath/efficientnet_lite0.safetensors --project NewNetwork --group Old --seed 1 --embed_dim 32 --loss contrastive --batch_mining distance --n_epochs 1
python main.py $objects --dataset_csv $datapath/objects.csv --weights $datapath/efficientnet_lite0.safetensors --project NewNetwork --group Free --seed 1 --embed_dim 128 --loss multisimilarity --n_epochs 5 --save_interval 5
python main.py $objects --dataset_csv $datapath/objects.csv --weights $datapath/efficientnet_lite0.safetensors --project NewNetwork --group Points --seed 1 --embed_dim 128 --loss multisimilarity --n_epochs 5 --save_interval 5 --trainer compatible --compatible_with Training_Results/csv/Old_s1 --compatible_form points
python main.py $objects --dataset_csv $datapath/objects.csv --weights $datapath/efficientnet_lite0.safetensors --project NewNetwork --group Old --seed 2 --embed_dim 32 --loss contrastive --batch_mining distance --n_epochs 1
python main.py $objects --dataset_csv $datapath/objects.csv --weights $datapath/efficientnet_lite0.safetensors --project NewNetwork --group Free --seed 2 --embed_dim 128 --loss multisimilarity --n_epochs 5 --save_interval 5
python main.py $objects --dataset_csv $datapath/objects.csv --weights $datapath/efficientnet_lite0.safetensors --project NewNetwork --group Points --seed 2 --embed_dim 128 --loss multisimilarity --n_epochs 5 --save_interval 5 --trainer compatible --compatible_with Training_Results/csv/Old_s2 --compatible_form points
