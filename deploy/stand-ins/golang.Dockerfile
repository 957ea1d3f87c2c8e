# What stands in for golang:1.26-bookworm where no registry can be reached: Debian
# with this machine's own Go, and with the certificates that this machine trusts.
FROM debian:bookworm-slim
COPY ca-certificates.crt /etc/ssl/certs/
COPY go /usr/local/go
ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin GOPATH=/go
WORKDIR /go
