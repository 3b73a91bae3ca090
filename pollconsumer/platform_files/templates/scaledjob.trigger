- type: $kind
  metadata:
    $metadata
  $authentication
