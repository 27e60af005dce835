package cache

import (
	"slices"
	"strings"
	"time"

	"millrace/cache/object"
	"millrace/internal/wire/compress"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/negotiate"
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
	on    bool
	queue chan packing
	done  chan struct{}
}

// packing is an object that waits for its encodings; with a rule, for being compressed
// with a dictionary, or if none is named, for being kept as one.
type packing struct {
	key    string
	object *object.Object
	rule   int
	with   dictionary.Hash
}

func newPacker(on bool) packer {
	return packer{on: on, queue: make(chan packing, packQueue), done: make(chan struct{})}
}

func (p *packer) stop() {
	if p.done != nil {
		close(p.done)
	}
}

// takes reports whether we may choose the object's encoding: the upstream
// has not, and nobody forbids it (RFC 9111, 5.2.2.6).
func (p *packer) takes(o *object.Object) bool {
	if !p.on || o.Status != 200 || o.Body == nil || o.Get("Content-Encoding") != "" || o.Get("Content-Range") != "" {
		return false
	}
	if !compress.Worth(o.Get("Content-Type"), o.Size) {
		return false
	}
	return !slices.ContainsFunc(o.Fields, func(f object.Field) bool {
		return f.Name == "Cache-Control" && slices.ContainsFunc(f.Values, func(v string) bool {
			return strings.Contains(strings.ToLower(v), "no-transform")
		})
	})
}

// wantPacked queues an object for compression at its first hit: compressing what
// is requested only once is not worth it.
func (h *Handler) wantPacked(key string, o *object.Object) {
	if o.Packing.Load() || !h.packer.takes(o) || !o.Packing.CompareAndSwap(false, true) {
		return
	}
	select {
	case h.packer.queue <- packing{key: key, object: o}:
	default:
		o.Packing.Store(false)
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
			switch {
			case k.rule == 0:
				h.pack(&tools, k)
			case k.with == dictionary.Hash{}:
				h.dictionaries.kept.Add(k.rule, k.object.Body)
			default:
				h.packWith(&tools, k)
			}
			rest.Reset(packRest)
		case <-rest.C:
			tools.FreeMemory()
		}
	}
}

// pack makes all encodings of an object that pay. The object is put into
// memory once more, for its new weight, which also makes the lane ask again.
func (h *Handler) pack(tools *compress.Tools, k packing) {
	var e object.Encodings
	useful := false
	effort := compress.Best
	if k.object.Facts.Fresh < quickBelow {
		effort = compress.Quick
	}
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		packed, err := tools.Pack(c, effort, k.object.Body, h.packer.done)
		if err != nil {
			return
		}
		if compress.Pays(len(k.object.Body), len(packed)) {
			e.Bodies[c], e.Available, useful = slices.Clip(packed), e.Available.With(c), true
		}
	}
	if !useful {
		return
	}
	if p := k.object.Packed.Load(); p != nil {
		e.Deltas = p.Deltas
	}
	k.object.Packed.Store(&e)
	h.tiers.Swap(k.key, k.object, k.object)
}
