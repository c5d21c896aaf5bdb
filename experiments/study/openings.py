"""The first lines of the studies' scripts: their question, the page of the results, and the commands."""

OPENING = """\
#!/bin/sh
# 9 losses, those with a miner with and without rho_distance, x 5 seeds, on emoji (pretrained network) \
and glyphs (random weights)
#
# Questions, protocol and results: docs/study.md. `make study-data` fetches the data. This file is written by \
experiments/study/protocol.py. In order:
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
"""
SPLIT_OPENING = """\
#!/bin/sh
# 6 losses x 6 splits of the classes x 3 seeds on emoji and glyphs: does a ranking of losses survive another half of \
the classes?
#
# Protocol and results: docs/study_splits.md. Data, losses and rates are those of Study_Runs.sh. This file is written by
# experiments/study/protocol.py. With OMP_NUM_THREADS=1:
#   python -m launch experiments/Split_Runs.sh --jobs 2
datapath=${datapath:-./Datasets}  # the folder of `make study-data`, without spaces
emoji=${emoji:-emoji_1008}
"""
BASELINE_OPENING = """\
#!/bin/sh
# A classifier with smoothed labels, a neck and generalised mean compared with the three best losses of Study_Runs.sh, \
with and without erasing, x 5 seeds
#
# Protocol and results: docs/study.md. `make study-data` fetches the data. This file is written by \
experiments/study/protocol.py. In order,
# with OMP_NUM_THREADS=1:
#   python -m launch experiments/Baseline_Runs.sh --jobs 2 --filter "group BaselineRate"
#   python -m experiments.study.protocol --choose Training_Results
#   python -m launch experiments/Baseline_Runs.sh --jobs 2 --filter "group Baseline_"
datapath=${datapath:-./Datasets}  # the folder of `make study-data`, without spaces
emoji=${emoji:-emoji_1008}
"""
RECENT_OPENING = """\
#!/bin/sh
# 7 methods of 2021 to 2024 and the 8 best losses of Study_Runs.sh, x 5 seeds, on emoji with the pretrained network
#
# Protocol and results: docs/study_recent.md. `make study-data` fetches the data. This file is written by \
experiments/study/protocol.py. In order,
# with OMP_NUM_THREADS=1:
#   python -m evaluation.pseudo_labels --dataset folder --dataset_name emoji \
--dataset_folder_path Datasets/emoji_1008 --use_tv_split --tv_split_perc 0.6667 --split_shuffle 0 \
--classifier timm:tf_efficientnet_lite0 --weights Datasets/efficientnet_lite0.pth --out Datasets/emoji_1008_rows.npz
#   python -m launch experiments/Recent_Runs.sh --jobs 2 --filter "group RecentRate"
#   python -m experiments.study.protocol --choose Training_Results
#   python -m launch experiments/Recent_Runs.sh --jobs 2 --filter "group Recent_"
datapath=${datapath:-./Datasets}  # the folder of `make study-data`, without spaces
emoji=${emoji:-emoji_1008}
"""
UNION_OPENING = """\
#!/bin/sh
# One embedding for emoji, glyphs, food photographs and stamps: a joint classifier, one per domain, \
a specialist per domain, the pretrained features; x 3 seeds
#
# Protocol and results: docs/study_union.md. `make study-data` and `python -m experiments.study.data --union` \
fetch the data. This file is
# written by experiments/study/protocol.py. With OMP_NUM_THREADS=1:
#   python -m launch experiments/Union_Runs.sh --jobs 2
datapath=${datapath:-./Datasets}  # the folder of these commands, without spaces
"""
