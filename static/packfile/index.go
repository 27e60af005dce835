package packfile

import (
	"crypto/sha256"
	"encoding/binary"
	"io/fs"

	"millrace/internal/wire/negotiate"
)

// encode writes the index: lengths and numbers as uvarints, each text behind
// its length, sums as they are.
func (x *Index) encode() []byte {
	b := appendText(nil, string(x.Config))
	b = appendText(b, string(x.Plan))
	b = appendBody(b, x.Base)
	b = binary.AppendUvarint(b, uint64(len(x.Roots)))
	for _, r := range x.Roots {
		b = appendText(b, r.Name)
		b = binary.AppendUvarint(b, uint64(len(r.Files)))
		for _, f := range r.Files {
			b = appendText(appendText(b, f.Name), f.Type)
			b = binary.AppendVarint(b, f.Modified)
			var has byte
			for c, body := range f.Bodies {
				if body.Offset != 0 {
					has |= 1 << c
				}
			}
			b = append(b, has)
			for _, body := range f.Bodies {
				if body.Offset != 0 {
					b = appendBody(b, body)
				}
			}
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBody(b []byte, body Body) []byte {
	b = binary.AppendVarint(binary.AppendVarint(b, body.Offset), body.Size)
	return append(b, body.Sum[:]...)
}

// reader takes an index apart. After a mistake all it returns is zero.
type reader struct {
	all string // texts are parts of it: one allocation for all names
	bad bool
}

func decode(index string) (x Index, err error) {
	r := &reader{all: index}
	x.Config, x.Plan = []byte(r.text()), []byte(r.text())
	x.Base = r.body()
	const least = 2 // the shortest a root can be, in bytes
	x.Roots = make([]Root, r.count(least))
	for i := range x.Roots {
		x.Roots[i] = r.root()
	}
	if r.bad || r.all != "" {
		return Index{}, ErrAltered
	}
	return x, nil
}

func (r *reader) root() Root {
	root := Root{Name: r.text()}
	// The shortest a file can be, in bytes: one each for the name and its length,
	// the type, the date and the set of bodies, and one body. What is made of it
	// has 232, so an index takes at most six times its length.
	const least = 5 + 2 + sha256.Size
	root.Files = make([]File, r.count(least))
	for i := range root.Files {
		f := &root.Files[i]
		f.Name, f.Type, f.Modified = r.text(), r.text(), r.number()
		has := r.take(1)
		if r.bad {
			break
		}
		for c := range f.Bodies {
			if has[0]&(1<<c) != 0 {
				f.Bodies[c] = r.body()
			}
		}
		sorted := i == 0 || root.Files[i-1].Name < f.Name
		if !sorted || !fs.ValidPath(f.Name) || f.Bodies[negotiate.Identity].Offset == 0 {
			r.bad = true
		}
	}
	return root
}

// take is the next n bytes.
func (r *reader) take(n int) string {
	if r.bad || n < 0 || n > len(r.all) {
		r.bad = true
		return ""
	}
	s := r.all[:n]
	r.all = r.all[n:]
	return s
}

// uvarint reads what binary.AppendUvarint wrote.
func (r *reader) uvarint() uint64 {
	b := []byte(r.all[:min(len(r.all), binary.MaxVarintLen64)])
	n, used := binary.Uvarint(b)
	if used <= 0 {
		r.bad = true
		return 0
	}
	r.take(used)
	return n
}

func (r *reader) number() int64 {
	n := r.uvarint()
	v := int64(n >> 1) //nolint:gosec // the zigzag of binary.AppendVarint
	if n&1 != 0 {
		v = ^v
	}
	return v
}

// count is a number of things that take at least so many bytes each.
func (r *reader) count(least int) int {
	n := r.uvarint()
	if r.bad || n > uint64(len(r.all)/least) {
		r.bad = true
		return 0
	}
	return int(n) //nolint:gosec // compared with a length
}

func (r *reader) text() string { return r.take(r.count(1)) }

func (r *reader) body() (b Body) {
	b.Offset, b.Size = r.number(), r.number()
	copy(b.Sum[:], r.take(len(b.Sum)))
	return b
}
