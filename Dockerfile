# docker build -t monotau .
# docker run --rm -v "$PWD/runs:/home/monotau/runs" monotau train --env CartPole-v1
FROM python:3.11-slim

# g++ lets long runs compile their updates (the setting `compile`).
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

# The CPU build of torch; for GPUs: docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=atari,box2d,cluster,export,minatar,tune,video,watch

WORKDIR /opt/monotau
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt --index-url "$TORCH_INDEX" torch \
 && pip install --no-cache-dir --constraint constraints.txt ".[$EXTRAS]"

RUN useradd --create-home --uid 1000 monotau
USER monotau
WORKDIR /home/monotau
ENTRYPOINT ["monotau"]
