-- Write the places that a step has freed and taken, and offer those that were given up.

count_places()
write_places()
for i = 1, #given_up do standing = standing + offer_places(given_up[i]) end  -- GUARD a place given up
