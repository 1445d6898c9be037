# docker build -t pushlease .    For several platforms: docker buildx build --platform linux/amd64,linux/arm64 .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=""
ARG COMMIT=""
ARG DATE=""
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -tags grpcnotrace -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT -X main.date=$DATE" -o /pushlease ./cmd/pushlease

# Nothing but CA certificates, time zones and a user without rights: no shell.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /pushlease /pushlease
# Beyond loopback the server starts only with PUSHLEASE_API_KEYS.
ENV PUSHLEASE_LISTEN=:8080
EXPOSE 8080
USER 65532:65532
ENTRYPOINT ["/pushlease"]
CMD ["serve"]
