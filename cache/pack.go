package cache

import (
	"slices"
	"strings"
	"time"

	"millrace/internal/compress"
	"millrace/internal/negotiate"
)

const (
	// packQueue bounds the answers that wait for compression; what finds no
	// place is tried again at its next hit.
	packQueue = 256
	// packRest is how long the encoders are kept after the last answer.
	packRest = 2 * time.Second
	// quickBelow is the lifetime under which the best compression is not worth
	// its time: see compress.Quick.
	quickBelow = time.Hour
)

// packer makes encodings, one at a time: compressing must never take more than
// one core from serving.
type packer struct {
	queue chan kept
	done  chan struct{}
}

func (p *packer) start() { p.queue, p.done = make(chan kept, packQueue), make(chan struct{}) }

func (p *packer) stop() {
	if p.done != nil {
		close(p.done)
	}
}

// packable reports whether we may choose the object's encoding: the upstream
// has not, and nobody forbids it (RFC 9111, 5.2.2.6).
func (h *Handler) packable(o *object) bool {
	if !h.compress || o.status != 200 || o.body == nil || o.get("Content-Encoding") != "" || o.get("Content-Range") != "" {
		return false
	}
	if !compress.Worth(o.get("Content-Type"), o.size) {
		return false
	}
	return !slices.ContainsFunc(o.fields, func(f field) bool {
		return f.name == "Cache-Control" && slices.ContainsFunc(f.values, func(v string) bool {
			return strings.Contains(strings.ToLower(v), "no-transform")
		})
	})
}

// wantPacked queues an object for compression at its first hit: what is asked
// for once only is not worth it.
func (h *Handler) wantPacked(key string, o *object) {
	if o.packing.Load() || !h.packable(o) || !o.packing.CompareAndSwap(false, true) {
		return
	}
	select {
	case h.packer.queue <- kept{key, o}:
	default:
		o.packing.Store(false)
	}
}

// packLoop runs until Close.
func (h *Handler) packLoop() {
	var tools compress.Tools
	rest := time.NewTimer(packRest)
	defer rest.Stop()
	for {
		select {
		case <-h.packer.done:
			return
		case k := <-h.packer.queue:
			h.pack(&tools, k)
			rest.Reset(packRest)
		case <-rest.C:
			tools.Rest()
		}
	}
}

// pack makes all encodings of an object that pay. The object is put into
// memory once more, for its new weight; what the lane has of it falls.
func (h *Handler) pack(tools *compress.Tools, k kept) {
	var e encodings
	useful := false
	effort := compress.Best
	if k.object.facts.Fresh < quickBelow {
		effort = compress.Quick
	}
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		packed, err := tools.Pack(c, effort, k.object.body, h.packer.done)
		if err != nil {
			return
		}
		if compress.Pays(len(k.object.body), len(packed)) {
			e.bodies[c], e.available, useful = slices.Clip(packed), e.available.With(c), true
		}
	}
	if !useful {
		return
	}
	k.object.packed.Store(&e)
	h.memory.swap(k.key, k.object, k.object)
}
