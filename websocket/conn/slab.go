package conn

// slabChunk is how many connections are allocated at a time.
const slabChunk = 256

// slab holds the connections of a loop. An event names one by the number of its place
// and a generation, so that an event that comes late does not reach the place's next
// connection.
type slab struct {
	chunks []*[slabChunk]Conn
	free   []uint32
}

func (s *slab) at(slot uint32) *Conn { return &s.chunks[slot/slabChunk][slot%slabChunk] }

func (s *slab) get() *Conn {
	if len(s.free) == 0 {
		base := uint32(len(s.chunks) * slabChunk)
		chunk := new([slabChunk]Conn)
		s.chunks = append(s.chunks, chunk)
		for i := range chunk {
			chunk[i].slot = base + uint32(i)
			s.free = append(s.free, base+slabChunk-1-uint32(i))
		}
	}
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return s.at(slot)
}

func (s *slab) put(c *Conn) { s.free = append(s.free, c.slot) }

// each calls f for all that are in use, in chunks from up to, not including, to.
func (s *slab) each(from, to int, f func(c *Conn)) {
	for _, chunk := range s.chunks[min(from, len(s.chunks)):min(to, len(s.chunks))] {
		for i := range chunk {
			if chunk[i].set != nil {
				f(&chunk[i])
			}
		}
	}
}
