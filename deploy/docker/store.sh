#!/bin/sh
# The store in a container of its own, since store = "embedded" would end with each launch's container. Run it once.
# Beyond 256 MB it refuses messages; the rewriting of its append-only file may need as much again.
docker network create pollconsumer
exec docker run --detach --name pollconsumer-store --network pollconsumer --restart unless-stopped \
  --memory 512m \
  --volume pollconsumer-store:/data \
  valkey/valkey:8 valkey-server --appendonly yes --maxmemory 256mb --maxmemory-policy noeviction
