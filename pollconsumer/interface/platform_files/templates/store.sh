#!/bin/sh
# The store in a container of its own, since store = "embedded" would end with each launch's container. Run it once.
docker network create $network
exec docker run --detach --name $store --network $network --restart unless-stopped \
  --volume $store:/data \
  valkey/valkey:8 valkey-server --appendonly yes --maxmemory-policy noeviction
