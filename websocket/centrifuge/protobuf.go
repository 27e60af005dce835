package centrifuge

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is what has fields. The method names each with its number in protobuf,
// once for reading and writing.
type message interface{ fields(p *pass) }

// pass goes over the fields of a message: it writes them all, or it reads the one
// that has come.
//
// For example number(p, 1, &m.Code) appends the field 1 to p.out when p writes, and
// sets m.Code when p reads and what has come is a field 1.
type pass struct {
	out []byte // what is written

	reading bool
	num     protowire.Number
	kind    protowire.Type
	value   uint64 // of a varint
	bytes   []byte // of a field with a length
	err     error
}

// errKind is a field that has come in another type than it has.
var errKind = errors.New("a field has another type")

// takes reports whether it is this field that has come; in another type it is an error.
func (p *pass) takes(num protowire.Number, kind protowire.Type) bool {
	if p.num != num {
		return false
	}
	if p.kind != kind {
		p.err = errKind
		return false
	}
	return true
}

func number[T ~uint32 | ~uint64 | ~int32 | ~int64](p *pass, num protowire.Number, v *T) {
	switch {
	case !p.reading && *v != 0:
		p.out = protowire.AppendTag(p.out, num, protowire.VarintType)
		p.out = protowire.AppendVarint(p.out, uint64(int64(*v)))
	case p.reading && p.takes(num, protowire.VarintType):
		*v = T(p.value)
	}
}

func flag(p *pass, num protowire.Number, v *bool) {
	switch {
	case !p.reading && *v:
		p.out = protowire.AppendTag(p.out, num, protowire.VarintType)
		p.out = append(p.out, 1)
	case p.reading && p.takes(num, protowire.VarintType):
		*v = p.value != 0
	}
}

func text(p *pass, num protowire.Number, v *string) {
	switch {
	case !p.reading && *v != "":
		p.out = protowire.AppendTag(p.out, num, protowire.BytesType)
		p.out = protowire.AppendString(p.out, *v)
	case p.reading && p.takes(num, protowire.BytesType):
		*v = string(p.bytes)
	}
}

func raw(p *pass, num protowire.Number, v *Raw) {
	switch {
	case !p.reading && len(*v) > 0:
		p.out = protowire.AppendTag(p.out, num, protowire.BytesType)
		p.out = protowire.AppendBytes(p.out, *v)
	case p.reading && p.takes(num, protowire.BytesType):
		*v = append(Raw{}, p.bytes...)
	}
}

// one is a message in a message. What comes in two parts is one.
func one[T any, M interface {
	*T
	message
}](p *pass, num protowire.Number, v *M) {
	switch {
	case !p.reading && *v != nil:
		p.nest(num, *v)
	case p.reading && p.takes(num, protowire.BytesType):
		if *v == nil {
			*v = new(T)
		}
		p.err = read(p.bytes, *v)
	}
}

func list[T any, M interface {
	*T
	message
}](p *pass, num protowire.Number, v *[]M) {
	if !p.reading {
		for _, m := range *v {
			p.nest(num, m)
		}
		return
	}
	if p.takes(num, protowire.BytesType) {
		m := M(new(T))
		p.err = read(p.bytes, m)
		*v = append(*v, m)
	}
}

// each is a map of messages, which is a list of entries.
func each[T any, M interface {
	*T
	message
}](p *pass, num protowire.Number, v *map[string]M) {
	if !p.reading {
		for key, m := range *v {
			p.nest(num, &entry[T, M]{key, m})
		}
		return
	}
	if p.takes(num, protowire.BytesType) {
		e := entry[T, M]{value: new(T)}
		p.err = read(p.bytes, &e)
		if *v == nil {
			*v = map[string]M{}
		}
		(*v)[e.key] = e.value
	}
}

// entry is one of a map.
type entry[T any, M interface {
	*T
	message
}] struct {
	key   string
	value M
}

func (e *entry[T, M]) fields(p *pass) {
	text(p, 1, &e.key)
	one(p, 2, &e.value)
}

// texts is a map of texts.
func texts(p *pass, num protowire.Number, v *map[string]string) {
	if !p.reading {
		for key, value := range *v {
			p.nest(num, &textEntry{key, value})
		}
		return
	}
	if p.takes(num, protowire.BytesType) {
		var e textEntry
		p.err = read(p.bytes, &e)
		if *v == nil {
			*v = map[string]string{}
		}
		(*v)[e.key] = e.value
	}
}

type textEntry struct{ key, value string }

func (e *textEntry) fields(p *pass) {
	text(p, 1, &e.key)
	text(p, 2, &e.value)
}

// nest writes a message as a field.
func (p *pass) nest(num protowire.Number, m message) {
	inner := pass{}
	m.fields(&inner)
	p.out = protowire.AppendTag(p.out, num, protowire.BytesType)
	p.out = protowire.AppendBytes(p.out, inner.out)
}

// read reads the fields of a message. Those that nobody knows are skipped.
func read(b []byte, m message) error {
	p := pass{reading: true}
	for len(b) > 0 {
		n := p.next(b)
		if p.err != nil {
			return p.err
		}
		b = b[n:]
		if m.fields(&p); p.err != nil {
			return fmt.Errorf("field %d: %w", p.num, p.err)
		}
	}
	return nil
}

// next reads a field, and returns how many bytes it has.
func (p *pass) next(b []byte) (n int) {
	num, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		p.err = protowire.ParseError(n)
		return 0
	}
	p.num, p.kind, p.value, p.bytes = num, kind, 0, nil
	var size int
	switch kind {
	case protowire.VarintType:
		p.value, size = protowire.ConsumeVarint(b[n:])
	case protowire.BytesType:
		p.bytes, size = protowire.ConsumeBytes(b[n:])
	default:
		size = protowire.ConsumeFieldValue(num, kind, b[n:])
	}
	if size < 0 {
		p.err = protowire.ParseError(size)
		return 0
	}
	return n + size
}
