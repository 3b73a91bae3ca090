-- Wake whoever idles at a marker.
-- KEYS k

wake(k)
return 1
