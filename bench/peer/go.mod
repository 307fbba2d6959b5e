module dibs/bench/peer

go 1.19
