# What stands in for nats:2.15-alpine where no registry can be reached: the server
# built by this machine's Go, and a wget for health checks.
FROM debian:bookworm-slim
RUN apt-get -q update && apt-get -q install -y --no-install-recommends busybox \
    && rm -rf /var/lib/apt/lists/* && ln -s /bin/busybox /usr/local/bin/wget
COPY nats-server /usr/local/bin/
CMD ["nats-server"]
