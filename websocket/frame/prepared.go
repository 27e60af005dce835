package frame

import (
	"sync"
	"sync/atomic"
)

// Prepared is one message for many clients, made ready once: plain, and once
// for each setting of compression that somebody asks for. Safe for concurrent
// use; what it returns must not be changed.
type Prepared struct {
	plain    []byte // the frame
	header   int    // bytes of its header
	op       Opcode
	compress bool

	// packed are the compressed frames by window, each made at the first need.
	packed [maxWindow - minWindow + 1]atomic.Pointer[[]byte]
	making sync.Mutex // so that nobody does what another is doing
}

// Prepare takes the payload over. Messages shorter than compressFrom bytes,
// and those that would not become shorter, are never compressed; 0 is never.
// Control frames never are.
func Prepare(op Opcode, payload []byte, compressFrom int) *Prepared {
	h := Header{Fin: true, Op: op, Length: int64(len(payload))}
	frame := h.Append(make([]byte, 0, MaxHeader+len(payload)))
	header := len(frame)
	return &Prepared{
		plain:    append(frame, payload...),
		header:   header,
		op:       op,
		compress: compressFrom > 0 && len(payload) >= compressFrom && !op.IsControl(),
	}
}

// Bytes is the whole frame, for a connection with these params. Whoever asks
// first for a compressed one compresses it; the others wait.
func (p *Prepared) Bytes(with Params) []byte {
	if !with.On || !p.compress {
		return p.plain
	}
	// Short messages are the same for all windows.
	slot := &p.packed[with.windowFor(len(p.plain)-p.header)-minWindow]
	if packed := slot.Load(); packed != nil {
		return *packed
	}
	p.making.Lock()
	defer p.making.Unlock()
	packed := slot.Load()
	if packed == nil {
		packed = p.pack(with)
		slot.Store(packed)
	}
	return *packed
}

// pack compresses the message, or returns the plain frame if that is no longer.
func (p *Prepared) pack(with Params) *[]byte {
	payload := p.Payload()
	deflated := with.Deflate(make([]byte, 0, len(payload)), payload)
	if len(deflated) >= len(payload) {
		return &p.plain
	}
	h := Header{Fin: true, Rsv1: true, Op: p.op, Length: int64(len(deflated))}
	// As much memory as it needs: it may be kept for long.
	frame := h.Append(make([]byte, 0, MaxHeader+len(deflated)))
	frame = append(frame, deflated...)
	return &frame
}

// Payload is what was prepared.
func (p *Prepared) Payload() []byte { return p.plain[p.header:len(p.plain):len(p.plain)] }
