#!/usr/bin/env bash
# What must be seen on a GPU that is rented by the minute, in order of value, each part under a time limit of its own:
# tests marked gpu, the parts of benchmarks/gpu.py, two whole runs: a ResNet-50 from JPEG files, and from --decode_once.
#
#     benchmarks/gpu_minutes.sh FOLDER                          # at most 9 minutes
#     benchmarks/gpu_minutes.sh FOLDER --minutes 5              # the parts that are left, when called again
#     benchmarks/gpu_minutes.sh FOLDER --objects Datasets       # with a training on the data of make objects-data
#     benchmarks/gpu_minutes.sh FOLDER --small --device cpu     # a trial of the script itself
#     python benchmarks/gpu.py --tables FOLDER                  # the figures as the tables of docs/scale.md
#
# FOLDER: parts.csv (what each part came to), versions.csv, figures as CSV, logs/, runs/, photographs/. It needs torch,
# torchvision, timm, numpy, scipy, pandas, pillow, tqdm and pyyaml; a part that needs another package, or a newer one,
# is skipped and names it.
set -uo pipefail

usage() { sed -n '5,9s/^# *//p' "$0" >&2; exit 2; }

folder=${1:-}
minutes=9
objects=
small=()
device=cuda
case $folder in ""|-*) usage ;; esac
shift
while [ $# -gt 0 ]; do
  case $1 in
    --minutes) minutes=${2:-}; shift 2 || usage ;;
    --objects) objects=${2:-}; shift 2 || usage ;;
    --small) small=(--small --repeats 2 --warm_up 1); shift ;;
    --device) device=${2:-}; shift 2 || usage ;;
    *) usage ;;
  esac
done
if [ -n "$objects" ]; then
  objects=$(cd "$objects" && pwd) && [ -f "$objects/objects.csv" ] || { echo "--objects: no objects.csv there" >&2; exit 2; }
fi
[[ $minutes =~ ^[1-9][0-9]*$ ]] && [[ $device =~ ^(cuda|cpu)$ ]] || usage

python=${PYTHON:-python}
mkdir -p "$folder/logs" "$folder/runs" || exit 2
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.." || exit 2
[ "$device" = cpu ] && export CUDA_VISIBLE_DEVICES=
end=$((SECONDS + 60 * minutes))
[ -f "$folder/parts.csv" ] || echo "part,status,seconds,note" > "$folder/parts.csv"
left_over=()

# What is missing on this machine, by the last line of a log that says so.
missing() {
  local words="No module named|ImportError|has no attribute|unexpected keyword argument|is not installed"
  grep -E "$words|is missing: pip" "$1" | tail -1 | tr -d '",' | cut -c1-200
}

# part NAME LIMIT COMMAND…: runs a part that has no result yet; LIMIT in seconds.
part() {
  local name=$1 limit=$2 began=$SECONDS status note rc
  shift 2
  grep -q "^$name,\(done\|skipped\|failed\)," "$folder/parts.csv" && return
  if [ $((end - SECONDS)) -lt 15 ]; then
    left_over+=("$name")
    return
  fi
  [ $((end - SECONDS)) -lt "$limit" ] && limit=$((end - SECONDS))
  timeout --signal=INT --kill-after=5 "$limit" "$@" > "$folder/logs/$name.log" 2>&1
  rc=$?
  note=$(missing "$folder/logs/$name.log")
  case $rc in
    0) status="done"; note= ;;
    5) status=skipped; note="no test of this kind" ;;
    124|130|137) status=stopped; note="after $limit s"; left_over+=("$name") ;;
    *) if [ -n "$note" ]; then status=skipped; else status=failed; note="exit status $rc"; fi ;;
  esac
  echo "$name,$status,$((SECONDS - began)),$note" >> "$folder/parts.csv"
  echo "$name: $status in $((SECONDS - began)) s${note:+ ($note)}"
}

gpu() { part "$1" "$2" "$python" benchmarks/gpu.py --device "$device" --csv "$folder" --only "${@:3}" "${small[@]}"; }

launcher=("$python")

# run NAME LIMIT FLAGS…: a whole run that has no result yet, with a tiny network if --small.
run() {
  local name=$1 limit=$2
  shift 2
  grep -q "^$name,\(done\|skipped\|failed\)," "$folder/parts.csv" && return
  if [[ "$*" == *"$folder/photographs"* ]] && [ ! -d "$folder/photographs" ]; then
    left_over+=("$name")
    return
  fi
  local words=(--loss multisimilarity --embed_dim 128 --bs 112 --data_sampler class_balanced --samples_per_class 4
    --not_pretrained --no_train_metrics --plot_every 0 --save_path "$folder/runs" --savename "$name" "$@")
  if [ ${#small[@]} -gt 0 ]; then
    words+=(--arch conv4_normalize --crop_size 32 --n_epochs 1 --save_interval 1 --iterations_per_epoch 3 --kernels 0)
  else
    words+=(--precision bfloat16 --evaluate_on_gpu)
  fi
  rm -rf "$folder/runs/"*/"$name"
  part "$name" "$limit" "${launcher[@]}" main.py "${words[@]}"
}

n_photographs=4000
[ ${#small[@]} -gt 0 ] && n_photographs=600
of_photographs=(--dataset folder --dataset_folder_path "$folder/photographs" --crop_size 224 --n_epochs 2
  --iterations_per_epoch 100)
of_objects=(--dataset csv --dataset_csv "$objects/objects.csv" --dataset_name objects --arch resnet50_normalize
  --augmentation base --crop_size 128 --crop_scale 0.4 1 --kernels 8
  --decode_once --image_cache "$folder/cache"
  --lr 0.0003 --scheduler cosine --n_epochs 40 --save_interval 5 --iterations_per_epoch 101 --log_every 50
  --evaluation_metrics e_recall@1 e_recall@2 e_recall@4 map_r nmi f1 mAP_1000)

tests=(-q -p no:cacheprovider -rs -m gpu)
"$python" -c "import xdist" 2> /dev/null && tests+=(-n 8)
part versions 60 "$python" benchmarks/_gpu_records.py versions "$folder"
part tests_of_steps 150 "$python" -m pytest "${tests[@]}" tests/test_gpu.py
part tests_of_bits 120 "$python" -m pytest "${tests[@]}" tests/test_deterministic.py
part tests_of_the_rest 90 "$python" -m pytest "${tests[@]}" tests/metrics/test_search.py tests/engine/test_cropping.py \
  tests/test_default_dtype.py tests/test_gpu_benchmark.py
gpu steps 120 steps --repeats 10 --warm_up 3
gpu metrics 60 metrics
part photographs 90 "$python" benchmarks/_gpu_records.py photographs "$folder" "$n_photographs"
run run_resnet50 90 "${of_photographs[@]}" --arch resnet50_normalize --kernels 8
[ -n "$objects" ] && run run_objects 300 "${of_objects[@]}"
gpu flags 120 flags
gpu loader 90 loader
run run_decode_once 90 "${of_photographs[@]}" --arch resnet50_normalize --kernels 0 --decode_once \
  --image_cache "$folder/decoded"
gpu determinism 60 determinism
gpu chunks 60 chunks
gpu faiss 60 faiss
launcher=("$python" -m torch.distributed.run --standalone --nproc_per_node 1)
of_nccl=("${of_photographs[@]}" --arch conv4_normalize --n_epochs 1 --iterations_per_epoch 10)
[ "$device" = cuda ] && of_nccl+=(--sync_bn)
run run_nccl 60 "${of_nccl[@]}"
gpu compile 150 compile
"$python" benchmarks/_gpu_records.py runs "$folder" || exit 1
if [ ${#left_over[@]} -gt 0 ]; then
  echo "left: ${left_over[*]}; call again with the same folder"
fi
echo "figures: $python benchmarks/gpu.py --tables $folder"
