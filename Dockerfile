# The program in a container:
#     docker build -t dmlkit .                        CPU
#     docker build -t dmlkit --build-arg TORCH=gpu .  with CUDA; run it with --gpus all
#     docker run --rm -v "$PWD:/work" dmlkit --config demo_glyphs
FROM python:3.12-slim
ARG TORCH=cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# libgomp1: OpenMP, which faiss and scikit-learn load
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*

COPY requirements /source/requirements
WORKDIR /source
# first, so that a change of the program does not install PyTorch again
RUN if [ "$TORCH" = cpu ]; then \
        pip install --no-cache-dir torch torchvision -c requirements/constraints.txt --index-url "$TORCH_INDEX"; \
    else \
        pip install --no-cache-dir torch torchvision -c requirements/constraints.txt; \
    fi

COPY . /source
RUN pip install --no-cache-dir ".[all]" -c requirements/constraints.txt && rm -rf /source

WORKDIR /work
ENTRYPOINT ["dmlkit"]
CMD ["--help"]
