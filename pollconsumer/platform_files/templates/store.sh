#!/bin/sh
# The store in a container of its own, since store = "embedded" would end with each launch's container. Run it once.
# Beyond 256 MB it refuses messages; the rewriting of its append-only file may need as much again.
docker network create $network
exec docker run --detach --name $store --network $network --restart unless-stopped \
  --memory 512m \
  --volume $store:/data \
  valkey/valkey:8 valkey-server --appendonly yes --maxmemory 256mb --maxmemory-policy noeviction
