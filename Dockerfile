# The watchdog's image: `docker build -t vllm-watchdog:1.0.0 .`
# BASE is any Debian-like image with bash, Python 3.11 or later and its venv module; give it with a digest to pin it.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
# For a build without a package index: wheels in deploy/image/wheels, and these two build arguments,
# PIP_NO_INDEX=1 and PIP_FIND_LINKS=/src/deploy/image/wheels. pip reads both from the environment.
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
WORKDIR /src
# pip stays in an environment of its own, which does not reach the final stage.
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/vllm-watchdog
COPY deploy/image/ deploy/image/
RUN /build/bin/pip --no-cache-dir --python /opt/vllm-watchdog/bin/python install --require-hashes -r deploy/image/requirements.txt
COPY . .
RUN /build/bin/pip --no-cache-dir --python /opt/vllm-watchdog/bin/python install --no-deps . \
    && install -m 0755 deploy/image/serve-beside deploy/image/alive /opt/vllm-watchdog/bin/

FROM ${BASE}
ARG VERSION=1.0.0
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="vllm-watchdog" \
      org.opencontainers.image.description="The on-call engineer beside every vLLM server: names the cause and says what to change." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.documentation="${SOURCE}"
COPY --from=build /opt/vllm-watchdog /opt/vllm-watchdog
# Group 0 may write as well: some platforms run images as an arbitrary user of that group.
RUN install -d -o 65532 -g 0 -m 0770 /var/lib/vllm-watchdog
ENV PATH=/opt/vllm-watchdog/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    WATCHDOG_STATE__DIRECTORY=/var/lib/vllm-watchdog
VOLUME /var/lib/vllm-watchdog
# By number, so that Kubernetes can tell that it is not root.
USER 65532:65532
EXPOSE 9847
# The service listens on loopback unless WATCHDOG_WEB__HOST says otherwise: the image opens nothing by itself.
HEALTHCHECK --interval=120s --timeout=10s --start-period=20s --retries=3 CMD ["alive"]
ENTRYPOINT ["vllm-watchdog"]
CMD ["serve"]
