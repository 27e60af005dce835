package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	genavif "github.com/gen2brain/avif"

	"millrace/images/header"
)

func u16(v int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }
func u32(v int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }

func mkBox(kind string, body ...[]byte) []byte { return appendBox(nil, kind, body...) }

// layout is a way to write the same image. The zero value is what libavif
// does, but for its brands.
type layout struct {
	ilocVersion                    int
	offset, length, base, index    int // bytes of numbers in iloc; 0: 4, 4, 0, 0
	inBase                         bool
	pieces                         int // of the image's data
	wideIPMA, wideIDs              bool
	primary                        int // 0: 1
	mdatFirst, mdatLarge, mdatOpen bool
	idat                           bool     // the image's data is in there
	fill                           int      // properties that nobody has
	properties                     []string // besides those of the sample, associated
	iinfVersion, irefVersion       int
	iref                           bool
	exif                           []byte // an Exif item's data, which is there before
	exifIdat                       bool
	change                         func(boxes map[string][]byte)
}

// parts of the sample that layouts are made of.
func parts(t testing.TB) (properties []box, payload []byte) {
	t.Helper()
	a, err := parseAVIF(samples(t)["still.avif"])
	if err != nil {
		t.Fatal(err)
	}
	iprp, _ := only(a.boxes, "iprp")
	children, _ := parseBoxes(iprp.body, false)
	if properties, err = parseBoxes(children[0].body, false); err != nil {
		t.Fatal(err)
	}
	return properties, a.top[len(a.top)-1].body
}

// build writes a file in a layout.
func (l layout) build(t testing.TB) []byte {
	t.Helper()
	properties, payload := parts(t)
	def := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	def(&l.offset, 4)
	def(&l.length, 4)
	def(&l.primary, 1)
	def(&l.pieces, 1)
	ids := idSize(l.wideIDs)
	id := func(v int) []byte { return appendUint(nil, uint64(v), ids) }

	var ipco, own []byte
	number := l.fill
	for range l.fill {
		ipco = append(ipco, mkBox("free")...)
	}
	associate := func(flag int) {
		number++
		if l.wideIPMA {
			own = append(own, u16(number|flag<<15)...)
		} else {
			own = append(own, byte(number|flag<<7))
		}
	}
	for _, p := range properties {
		ipco = append(ipco, mkBox(p.kind, p.body)...)
		associate(map[bool]int{true: 1}[p.kind == "av1C"])
	}
	for _, p := range l.properties {
		ipco = append(ipco, mkBox(p[:4], []byte(p[4:]))...)
		associate(map[bool]int{true: 1}[p[:4] == "irot"])
	}
	count := len(properties) + len(l.properties)
	ipma := mkBox("ipma", []byte{byte(ids/2 - 1), 0, 0, map[bool]byte{true: 1}[l.wideIPMA]}, u32(1), id(l.primary), []byte{byte(count)}, own)
	if l.wideIDs && l.primary <= 0xffff { // another box for other items comes first
		ipma = append(mkBox("ipma", u32(0), u32(1), u16(77), []byte{1, 1}), ipma...)
	}
	ftyp := mkBox("ftyp", []byte("avif\x00\x00\x00\x00avifmif1miafMA1A"))
	exifID := l.primary + 1
	infe := func(item int, kind string) []byte {
		return mkBox("infe", []byte{byte(ids/2 + 1), 0, 0, 0}, id(item), u16(0), []byte(kind+"\x00"))
	}
	items := infe(l.primary, "av01")
	n := 1
	iref := mkBox("iref", []byte{byte(l.irefVersion), 0, 0, 0})
	if l.exif != nil {
		n++
		items = append(items, infe(exifID, "Exif")...)
		size := idSize(l.irefVersion > 0)
		iref = mkBox("iref", []byte{byte(l.irefVersion), 0, 0, 0}, mkBox("cdsc", appendUint(nil, uint64(exifID), size), u16(1), appendUint(nil, uint64(l.primary), size)))
	} else if !l.iref {
		iref = nil
	}
	iinf := mkBox("iinf", []byte{byte(l.iinfVersion), 0, 0, 0}, appendUint(nil, uint64(n), idSize(l.iinfVersion > 0)), items)
	idat := []byte{}
	if l.idat {
		idat = mkBox("idat", payload)
	}
	if l.exifIdat {
		idat = mkBox("idat", l.exif)
	}
	mdat := mkBox("mdat", payload, l.exif)
	if l.exifIdat {
		mdat = mkBox("mdat", payload)
	}
	switch {
	case l.mdatLarge:
		mdat = bytes.Join([][]byte{u32(1), []byte("mdat"), appendUint(nil, uint64(len(mdat)+8), 8), mdat[8:]}, nil)
	case l.mdatOpen:
		copy(mdat, u32(0))
	}
	iloc := func(data int) []byte { // where the data of mdat begins
		b := []byte{byte(l.ilocVersion), 0, 0, 0, byte(l.offset<<4 | l.length), byte(l.base<<4 | l.index)}
		b = appendUint(b, uint64(n), idSize(l.ilocVersion == 2))
		entry := func(item int, in bool, at, size, pieces int) {
			b = appendUint(b, uint64(item), idSize(l.ilocVersion == 2))
			if l.ilocVersion > 0 {
				b = append(b, 0, map[bool]byte{true: inIdat}[in])
			}
			b = append(b, 0, 0)
			base := 0
			if l.inBase {
				base = at
			}
			b = appendUint(b, uint64(base), l.base)
			b = append(b, u16(pieces)...)
			for i := range pieces {
				from, to := size*i/pieces, size*(i+1)/pieces
				b = appendUint(b, uint64(i), l.index)
				b = appendUint(b, uint64(at-base+from), l.offset)
				b = appendUint(b, uint64(to-from), l.length)
			}
		}
		entry(l.primary, l.idat, map[bool]int{false: data}[l.idat], len(payload), l.pieces)
		if l.exif != nil {
			entry(exifID, l.exifIdat, map[bool]int{false: data + len(payload)}[l.exifIdat], len(l.exif), 1)
		}
		return mkBox("iloc", b)
	}
	write := func(data int) ([]byte, int) {
		boxes := map[string][]byte{
			"hdlr": mkBox("hdlr", make([]byte, 8), []byte("pict"), make([]byte, 13)),
			"pitm": mkBox("pitm", []byte{byte(ids/2 - 1), 0, 0, 0}, id(l.primary)),
			"iloc": iloc(data), "iinf": iinf, "iref": iref, "idat": idat,
			"iprp": mkBox("iprp", mkBox("ipco", ipco), ipma), "ftyp": ftyp, "mdat": mdat,
		}
		if l.change != nil {
			l.change(boxes)
		}
		meta := mkBox("meta", u32(0), boxes["hdlr"], boxes["pitm"], boxes["iloc"], boxes["iinf"], boxes["iref"], boxes["iprp"], boxes["idat"])
		head := 8
		if l.mdatLarge {
			head = 16
		}
		if l.mdatFirst {
			return bytes.Join([][]byte{boxes["ftyp"], boxes["mdat"], meta}, nil), len(boxes["ftyp"]) + head
		}
		return bytes.Join([][]byte{boxes["ftyp"], mkBox("free", []byte("x")), meta, boxes["mdat"]}, nil), len(boxes["ftyp"]) + 9 + len(meta) + head
	}
	_, data := write(0)
	file, _ := write(data)
	return file
}

// layouts are those that must be read and kept.
func layouts() map[string]layout {
	old := string(mkBox("colr", []byte("prof"), profile(150))[4:])
	return map[string]layout{
		"plain":                 {},
		"iloc 1":                {ilocVersion: 1, index: 4},
		"iloc 2, wide numbers":  {ilocVersion: 2, wideIDs: true, iinfVersion: 1, irefVersion: 1, iref: true},
		"item 70,000":           {ilocVersion: 2, wideIDs: true, primary: 70_000, iinfVersion: 1},
		"offsets of 8":          {offset: 8, length: 8, base: 8},
		"offsets in the base":   {base: 8, inBase: true},
		"offset is the base":    {offset: -1, base: 4, inBase: true},
		"three pieces":          {pieces: 3, ilocVersion: 1, index: 8},
		"idat":                  {idat: true, ilocVersion: 1},
		"mdat first":            {mdatFirst: true},
		"mdat of 64 bits":       {mdatLarge: true, exif: oldEXIF(), wideIPMA: true},
		"mdat open":             {mdatOpen: true},
		"mdat open, with EXIF":  {mdatOpen: true, exif: oldEXIF()},
		"ipma, large":           {wideIPMA: true},
		"ipma becomes large":    {fill: 120},
		"with a profile":        {properties: []string{old}},
		"restricted profile":    {properties: []string{"colrrICC" + string(profile(150))}},
		"turned":                {properties: []string{"irot\x01"}},
		"with EXIF":             {exif: oldEXIF(), irefVersion: 1},
		"with EXIF, mdat first": {exif: oldEXIF(), mdatFirst: true},
		"with EXIF in idat":     {exif: oldEXIF(), exifIdat: true, ilocVersion: 1},
	}
}

func oldEXIF() []byte {
	return append([]byte{0, 0, 0, 0}, header.EXIF("old copyright", "old artist")...)
}

// TestAVIFLayouts edits an image in every layout: it keeps its pixels for
// libavif, and its profile and EXIF are found by others.
func TestAVIFLayouts(t *testing.T) {
	m := Metadata{ICC: profile(301), EXIF: header.EXIF("© Ann Example", "Ann")}
	for name, l := range layouts() {
		t.Run(name, func(t *testing.T) {
			if l.offset < 0 {
				l.offset = 0 // the zero value means 4
				l.change = func(b map[string][]byte) { b["iloc"] = withoutOffsets(b["iloc"]) }
			}
			file := l.build(t)
			for _, m := range []Metadata{m, {ICC: m.ICC}, {EXIF: m.EXIF}} {
				got, err := AVIF(file, m)
				if err != nil {
					t.Fatal(err)
				}
				sameAVIF(t, file, got)
				checkAVIF(t, got, m)
				again, err := AVIF(got, m)
				if err != nil {
					t.Fatalf("a second edit: %v", err)
				}
				sameAVIF(t, file, again)
				checkAVIF(t, again, m)
			}
		})
	}
}

// withoutOffsets takes the offsets out of an iloc box of one item, whose base
// says all.
func withoutOffsets(iloc []byte) []byte {
	b := bytes.Clone(iloc[8:])
	b[4] = 4 // offsets of 0 bytes, lengths of 4
	at := 8 + 2 + 2 + 4 + 2
	return mkBox("iloc", b[:at], b[at+4:])
}

// checkAVIF looks for what was put in, and that nothing old is left.
func checkAVIF(t *testing.T, file []byte, m Metadata) {
	t.Helper()
	i := probe(t, file)
	if i.Width != 47 || i.Height != 31 {
		t.Errorf("%d × %d pixels", i.Width, i.Height)
	}
	if m.ICC != nil && !bytes.Equal(i.ICC, m.ICC) {
		t.Errorf("a profile of %d bytes, want %d", len(i.ICC), len(m.ICC))
	}
	if m.EXIF == nil {
		return
	}
	if bytes.Contains(file, []byte("old artist")) {
		t.Error("the old EXIF is still in the file")
	}
	if n := bytes.Count(file, []byte("Exif\x00")); n != 1 {
		t.Errorf("there are %d Exif items", n)
	}
	if underRace {
		return
	}
	e, err := genavif.DecodeExif(bytes.NewReader(file))
	if err != nil || e.Artist != "Ann" {
		t.Errorf("libavif's wrapper reads %+v, %v", e, err)
	}
}

// TestAVIFSamples edits what avifenc writes: with alpha, as a grid, with
// metadata before.
func TestAVIFSamples(t *testing.T) {
	m := Metadata{ICC: profile(301), EXIF: header.EXIF("© Ann Example", "Ann")}
	for name, file := range samples(t) {
		t.Run(name, func(t *testing.T) {
			got, err := AVIF(file, m)
			if err != nil {
				t.Fatal(err)
			}
			sameAVIF(t, file, got)
			before, i := probe(t, file), probe(t, got)
			if !bytes.Equal(i.ICC, m.ICC) || i.Alpha != before.Alpha || i.Width != before.Width || i.Height != before.Height {
				t.Errorf("got %+v, before %+v", i, before)
			}
			if n := bytes.Count(file, []byte("nclx")); bytes.Count(got, []byte("nclx")) != n {
				t.Errorf("it had %d colr boxes of type nclx, now %d", n, bytes.Count(got, []byte("nclx")))
			}
			t.Run("avifdec", func(t *testing.T) {
				out := installed(t, got, "avif", "avifdec", "--info")
				for _, want := range []string{"ICC Profile    : Present (301 bytes)", fmt.Sprintf("Exif Metadata  : Present (%d bytes)", len(m.EXIF))} {
					if !strings.Contains(out, want) {
						t.Errorf("it does not say %q:\n%s", want, out)
					}
				}
			})
			t.Run("vipsheader", func(t *testing.T) {
				if out := installed(t, got, "avif", "vipsheader", "-a"); !strings.Contains(out, "icc-profile-data: 301 bytes") || !strings.Contains(out, "Ann Example") {
					t.Error(out)
				}
			})
		})
	}
}

// TestAVIFTransforms: what describes stands before what turns the image.
func TestAVIFTransforms(t *testing.T) {
	got, err := AVIF(layout{properties: []string{"irot\x01"}}.build(t), Metadata{ICC: profile(200)})
	if err != nil {
		t.Fatal(err)
	}
	a, err := parseAVIF(got)
	if err != nil {
		t.Fatal(err)
	}
	iprp, _ := only(a.boxes, "iprp")
	children, _ := parseBoxes(iprp.body, false)
	_, own, err := a.ownProperties(children)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(own); n < 2 || own[n-2] != uint16(n) || own[n-1] != uint16(n-1)|essential {
		t.Errorf("the properties are %x", own)
	}
}

// fault is a file that must be refused with an error that says why.
type fault struct {
	file []byte
	says string
}

// avifFaults are a sound layout with one thing wrong each time.
func avifFaults(t testing.TB) map[string]fault {
	change := func(kind string, f func(b []byte) []byte) []byte {
		return layout{ilocVersion: 1, exif: oldEXIF(), change: func(boxes map[string][]byte) {
			boxes[kind] = f(bytes.Clone(boxes[kind]))
		}}.build(t)
	}
	set := func(kind string, at int, values ...byte) []byte {
		return change(kind, func(b []byte) []byte { copy(b[at:], values); return b })
	}
	twice := func(b []byte) []byte { return append(b, b...) }
	gone := func([]byte) []byte { return nil }
	sound := layout{ilocVersion: 1, exif: oldEXIF()}.build(t)
	// Places in iloc: 8 head, 8 sizes and count, the first item: 2 number, 2 method,
	// 2 where, 2 count of pieces, 4 offset, 4 length.
	return map[string]fault{
		"a jpeg":                 {[]byte("\xff\xd8\xff\xe0 and so on, for long enough"), `are left`},
		"half a box":             {sound[:4], `4 bytes are left`},
		"cut off":                {sound[:len(sound)-1], `and 309 are left`},
		"no ftyp":                {sound[32:], `does not begin`},
		"a sequence":             {append(mkBox("ftyp", []byte("avis\x00\x00\x00\x00avif")), append(sound[32:], mkBox("moov")...)...), `moov`},
		"heic":                   {set("ftyp", 8, []byte("heic\x00\x00\x00\x00heicmif1miafMA1A")...), `does not begin`},
		"no meta":                {mkBox("ftyp", []byte("avif\x00\x00\x00\x00")), `no box "meta"`},
		"two metas":              {append(bytes.Clone(sound), mkBox("meta", u32(0))...), `two boxes "meta"`},
		"no primary":             {change("pitm", gone), `no box "pitm"`},
		"primary 0":              {set("pitm", 12, 0, 0), `which of its items`},
		"primary cut off":        {set("pitm", 8, 1), `which of its items`},
		"no iloc":                {change("iloc", gone), `no box "iloc"`},
		"two ilocs":              {change("iloc", twice), `two boxes "iloc"`},
		"iloc 3":                 {set("iloc", 8, 3), `version 3`},
		"iloc, numbers of 2":     {set("iloc", 12, 0x24), `2 bytes`},
		"iloc, no lengths":       {set("iloc", 12, 0x40), `lengths of 0`},
		"iloc, items missing":    {set("iloc", 14, 0xff, 0xff), `"iloc" is cut off`},
		"iloc, pieces missing":   {set("iloc", 22, 0xff, 0xff), `item 1`},
		"iloc, other file":       {set("iloc", 20, 0, 1), `another file`},
		"iloc, method 3":         {set("iloc", 18, 0, 3), `no known place`},
		"iloc, no idat":          {set("iloc", 18, 0, 1), `item 1 is cut off`},
		"iloc, behind the end":   {set("iloc", 24, 0, 1, 0, 0), `item 1 is cut off`},
		"iloc, far away":         {set("iloc", 24, 0xff, 0xff, 0xff, 0xff), `item 1 is cut off`},
		"iloc, in meta":          {set("iloc", 24, 0, 0, 0, 100), `in the box "meta"`},
		"iloc, long":             {set("iloc", 28, 0, 1, 0, 0), `item 1 is cut off`},
		"iloc, of no length":     {set("iloc", 28, 0, 0, 0, 0), `nowhere`},
		"Exif in two places":     {set("iloc", 16, 0, 2), `more than one place`},
		"Exif shares":            {set("iloc", 28, 0, 0, 1, 0), `shares bytes`},
		"Exif is ftyp":           {set("iloc", 16+16+8, 0, 0, 0, 0, 0, 0, 0, 28), `not where data belongs`},
		"iinf, count":            {set("iinf", 12, 0, 3), `3 items and has 2`},
		"iinf, other boxes":      {change("iinf", func(b []byte) []byte { return bytes.Replace(b, []byte("infe"), []byte("free"), 1) }), `"free"`},
		"two irefs":              {change("iref", twice), `two boxes "iref"`},
		"short iref":             {change("iref", func([]byte) []byte { return mkBox("iref", []byte{0}) }), `"iref" has 1`},
		"no iprp":                {change("iprp", gone), `no box "iprp"`},
		"iprp without ipco":      {change("iprp", func(b []byte) []byte { return bytes.Replace(b, []byte("ipco"), []byte("free"), 1) }), `no box "ipco"`},
		"iprp without ipma":      {change("iprp", func(b []byte) []byte { return bytes.Replace(b, []byte("ipma"), []byte("free"), 1) }), `no properties`},
		"ipma of another":        {change("iprp", func(b []byte) []byte { b[len(b)-6] = 9; return b }), `no properties`},
		"ipma cut off":           {change("iprp", func(b []byte) []byte { b[len(b)-5] = 200; return b }), `"ipma" is cut off`},
		"ipma, missing property": {change("iprp", func(b []byte) []byte { b[len(b)-1] = 99; return b }), `property 99 of 4`},
	}
}

// TestAVIFRefused: in a sound layout one thing is wrong each time.
func TestAVIFRefused(t *testing.T) {
	if _, err := AVIF(layout{ilocVersion: 1, exif: oldEXIF()}.build(t), Metadata{ICC: profile(200), EXIF: []byte("x")}); err != nil {
		t.Fatalf("the layout that faults are put into: %v", err)
	}
	for name, c := range avifFaults(t) {
		got, err := AVIF(c.file, Metadata{ICC: profile(200), EXIF: []byte("x")})
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %d bytes, %v; want ErrFormat with %q", name, len(got), err, c.says)
		}
	}
}

// TestAVIFNoRoom: counts of 16 bits that are used up.
func TestAVIFNoRoom(t *testing.T) {
	many := func(count int) []byte {
		return layout{change: func(b map[string][]byte) {
			iloc := b["iloc"]
			entry := iloc[16:]
			iloc = append(iloc[8:14:14], u16(count)...)
			for i := range count {
				iloc = append(append(iloc, u16(i+1)...), entry[2:]...)
			}
			b["iloc"] = mkBox("iloc", iloc)
		}}.build(t)
	}
	if _, err := AVIF(many(300), Metadata{EXIF: []byte("x")}); err != nil {
		t.Error(err)
	}
	for _, n := range []int{65534, 65535} {
		_, err := AVIF(many(n), Metadata{EXIF: []byte("x")})
		if full := n == 65535; full != errors.Is(err, ErrFormat) {
			t.Errorf("%d items: %v", n, err)
		}
	}
}

// FuzzAVIF: nothing panics, nothing grows, and what comes out goes in again.
func FuzzAVIF(f *testing.F) {
	for _, file := range samples(f) {
		f.Add(file)
	}
	for _, l := range layouts() {
		l.offset = max(l.offset, 0)
		f.Add(l.build(f))
	}
	for _, c := range avifFaults(f) {
		f.Add(c.file)
	}
	m := Metadata{ICC: profile(201), EXIF: header.EXIF("c", "a")}
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, m := range []Metadata{m, {ICC: m.ICC}, {EXIF: m.EXIF}} {
			got, err := AVIF(file, m)
			if err != nil {
				if !errors.Is(err, ErrFormat) {
					t.Errorf("%v is not ErrFormat", err)
				}
				continue
			}
			if most := 3*len(file) + 700; len(got) > most {
				t.Errorf("%d bytes become %d", len(file), len(got))
			}
			if _, err := AVIF(got, m); err != nil {
				t.Errorf("what was written is refused: %v", err)
			}
			before, errBefore := header.Read(file)
			after, errAfter := header.Read(got)
			if errBefore != nil {
				continue
			}
			if errAfter != nil || after.Width != before.Width || after.Height != before.Height {
				t.Errorf("before %+v, after %+v, %v", before, after, errAfter)
			}
			if m.ICC != nil && !bytes.Equal(after.ICC, m.ICC) {
				t.Errorf("the profile is lost")
			}
		}
	})
}
