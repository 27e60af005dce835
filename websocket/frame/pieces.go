package frame

import "sync"

// chunkSize is a size class of Go's allocator: nothing is lost around a chunk.
const chunkSize = 16 << 10

// chunks are shared by all that is long: what one message gives back is there
// for the next, whether compressed or not, so that a crowd of large messages
// leaves nothing to collect.
var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// Pieces are bytes in chunks of one size: what is there need not be copied when
// more comes. The zero Pieces are empty. They must be freed.
type Pieces struct {
	chunks []*[chunkSize]byte
	size   int
}

// Size is how many bytes there are.
func (p *Pieces) Size() int { return p.size }

// Add appends b. take is asked for the memory of each new chunk; where it says
// no, only a part of b was added.
func (p *Pieces) Add(b []byte, take func(n int) bool) bool {
	for len(b) > 0 {
		if p.full() && !p.grow(take) {
			return false
		}
		n := copy(p.space(), b)
		p.size += n
		b = b[n:]
	}
	return true
}

// Free gives the memory back to be used again, and returns how many bytes take
// was asked for.
func (p *Pieces) Free() (taken int) {
	for _, k := range p.chunks {
		chunks.Put(k)
	}
	taken = len(p.chunks) * chunkSize
	*p = Pieces{}
	return taken
}

// full reports whether the next byte needs another chunk.
func (p *Pieces) full() bool { return p.size == len(p.chunks)*chunkSize }

func (p *Pieces) grow(take func(n int) bool) bool {
	if !take(chunkSize) {
		return false
	}
	p.chunks = append(p.chunks, chunks.Get().(*[chunkSize]byte))
	return true
}

// space is what is free of the last chunk. They are not full.
func (p *Pieces) space() []byte { return p.chunks[len(p.chunks)-1][p.size%chunkSize:] }

// from is what there is from byte i on, in its parts.
func (p *Pieces) from(i int) [][]byte {
	parts := make([][]byte, 0, len(p.chunks)-i/chunkSize)
	for ; i < p.size; i += chunkSize - i%chunkSize {
		at := i / chunkSize * chunkSize
		parts = append(parts, p.chunks[i/chunkSize][i-at:min(chunkSize, p.size-at)])
	}
	return parts
}

// appendTo appends the bytes from i on to dst.
func (p *Pieces) appendTo(dst []byte, i int) []byte {
	for _, part := range p.from(i) {
		dst = append(dst, part...)
	}
	return dst
}
