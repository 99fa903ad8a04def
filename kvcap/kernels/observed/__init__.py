"""What a cache was seen to do, against the reuse runs of its traffic.

``pieces`` cuts runs where the blocks were not computed yet when the request came, and lays the observed hit
over them; ``limits`` finds the capacity and the age that get the fewest tokens wrong; ``restarts`` finds the
times that no hit spans; ``waterfall`` puts every token into one class.
"""
