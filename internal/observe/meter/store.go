package meter

import "time"

// Store counts what a server is asked that several machines share: a Redis, a bucket, NATS.
type Store struct {
	Kind   string // redis, s3 or nats
	Server string // host:port, without passwords
	Use    string // what it is for, like "cache of /"

	Calls         Histogram // that the server was asked, and how long they took
	Errors        Counter   // those of them that it did not answer, or refused
	Hits, Misses  Counter   // reads that found something, and those that did not
	Read, Written Counter   // bytes of what was read and written

	Open    Gauge // how many parts of this process use it; 0: it is not in use any more
	Down    Gauge // those of them that cannot use it now
	Waiting Gauge // purges or publications that wait until it can be reached
}

// Call counts a call that began then and has ended.
func (s *Store) Call(began time.Time, failed bool) {
	s.Calls.Observe(uint32(began.UnixNano()>>10), time.Since(began))
	if failed {
		s.Errors.Add(0, 1)
	}
}

// Look counts a read, and the bytes of what it found.
func (s *Store) Look(found bool, bytes int64) {
	if !found {
		s.Misses.Add(0, 1)
		return
	}
	s.Hits.Add(0, 1)
	s.Read.Add(0, uint64(bytes))
}

// Store returns the counters of a shared server for one use and makes them at the first
// call, as Cache does.
func (m *Meters) Store(kind, server, use string) *Store {
	return m.stores.get(use+"\x00"+kind+"\x00"+server, func(name string) *Store {
		if name == overflow {
			kind, server, use = overflow, overflow, overflow
		}
		return &Store{Kind: kind, Server: server, Use: use}
	})
}

// Stores lists those that were ever in use, ordered by their use.
func (m *Meters) Stores() []*Store { return m.stores.list() }
