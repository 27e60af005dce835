package container

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"image"
	"image/png"
	"testing"
)

// located is an EXIF block with one field, a place, and a field behind it.
func located(order binary.AppendByteOrder) []byte {
	head := map[bool]string{true: "II*\x00", false: "MM\x00*"}[order.String() == "LittleEndian"]
	b := order.AppendUint32([]byte(head), 8)
	b = order.AppendUint16(b, 3)
	entry := func(tag, kind uint16, count, value uint32) {
		b = order.AppendUint16(order.AppendUint16(b, tag), kind)
		b = order.AppendUint32(order.AppendUint32(b, count), value)
	}
	entry(0x0131, 2, 9, 104)
	entry(0x8825, 4, 1, 50)
	entry(0x9999, 4, 1, 0x0a0b0c0d)
	b = order.AppendUint32(b, 0x01020304)
	b = order.AppendUint16(b, 2)
	entry(1, 2, 2, 0x4e000000)
	entry(2, 5, 3, 80)
	b = order.AppendUint32(b, 0)
	for _, n := range []uint32{52, 1, 31, 1, 0x5eed5eed, 100} {
		b = order.AppendUint32(b, n)
	}
	return append(b, "software\x00"...)
}

// The place goes, everything else stays where it is.
func TestWithoutLocation(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		block := located(order)
		file := append(append([]byte("\xff\xd8 something Exif\x00\x00"), block...), " and more"...)
		before := bytes.Clone(file)
		got := WithoutLocation(file)
		if !bytes.Equal(file, before) || len(got) != len(file) {
			t.Fatalf("%v: the file was changed, or is %d bytes long now", order, len(got))
		}
		seed := order.AppendUint32(nil, 0x5eed5eed)
		if bytes.Contains(got, seed) || bytes.Contains(got, order.AppendUint16(nil, 0x8825)) {
			t.Errorf("%v: % x", order, got)
		}
		at := bytes.Index(got, block[:4])
		exif := got[at:][:len(block)]
		kept := append(order.AppendUint16(nil, 2), block[10:22]...) // two entries: the first, then the third
		kept = append(append(kept, block[34:46]...), block[46:50]...)
		if !bytes.Equal(exif[8:38], kept) || !bytes.HasSuffix(exif, []byte("software\x00")) || !bytes.HasSuffix(got, []byte(" and more")) {
			t.Errorf("%v: % x, not % x", order, exif[8:38], kept)
		}
		if again := WithoutLocation(got); &again[0] != &got[0] {
			t.Errorf("%v: what has no place is copied", order)
		}
	}
}

func TestWithoutLocationInXMPAndFilm(t *testing.T) {
	film := append(binary.BigEndian.AppendUint16([]byte("\x00\x00\x00\x1e\xa9xyz"), 18), "\x15\xc7+52.5200+013.4050/udta"...)
	drone := []byte(`<x drone-dji:GpsLatitude="+52.520001" drone-dji:GpsLongtitude="+13.404999" drone-dji:GimbalYawDegree="+1.00"/>`)
	flown := []byte(`<x drone-dji:GpsLatitude="          " drone-dji:GpsLongtitude="          " drone-dji:GimbalYawDegree="+1.00"/>`)
	if got := WithoutLocation(drone); !bytes.Equal(got, flown) {
		t.Errorf("%s", got)
	}
	file := []byte(`<x exif:GPSLatitude="52,31N" a="1" exif:GPSLongitude = '13,24E' exif:GPSVersionID=""><exif:GPSAltitude>34/1</exif:GPSAltitude><exif:Flash>7</exif:Flash><exif:GPSx/> exif:GPS`)
	want := []byte(`<x exif:GPSLatitude="      " a="1" exif:GPSLongitude = '      ' exif:GPSVersionID=""><exif:GPSAltitude>    </exif:GPSAltitude><exif:Flash>7</exif:Flash><exif:GPSx/> exif:GPS`)
	if got := WithoutLocation(file); !bytes.Equal(got, want) {
		t.Errorf("%s", got)
	}
	if got := WithoutLocation(film); bytes.Contains(got, []byte("52.52")) || !bytes.HasSuffix(got, []byte("udta")) || len(got) != len(film) {
		t.Errorf("%q", got)
	}
}

// Each page of a TIFF may say where it was made.
func TestWithoutLocationInPages(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		first := located(order)
		const gps = 50 // in located
		second := order.AppendUint16(nil, 1)
		at := uint32(len(first))
		second = order.AppendUint16(order.AppendUint16(second, 0x8825), 4)
		second = order.AppendUint32(order.AppendUint32(second, 1), at+18)
		second = order.AppendUint32(second, 0) // there is no third
		second = append(second, first[gps:80]...)
		second = append(second, first[80:104]...)
		order.(binary.ByteOrder).PutUint32(second[18+2+12+8:], at+18+30)
		order.(binary.ByteOrder).PutUint32(first[46:], at)
		got := WithoutLocation(append(first, second...))
		if n := bytes.Count(got, order.AppendUint32(nil, 0x5eed5eed)); n != 0 {
			t.Errorf("%v: %d places are left: % x", order, n, got)
		}
	}
}

// Check sums of PNG are right afterwards, and what is hidden in texts is left out.
func TestWithoutLocationInPNG(t *testing.T) {
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 5, 4))); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, _ = z.Write([]byte("exif 5eed5eed"))
	_ = z.Close()
	var put []byte
	for _, c := range [][2]string{
		{"eXIf", string(located(binary.BigEndian))},
		{"iTXt", "XML:com.adobe.xmp\x00\x00\x00\x00\x00exif:GPSLatitude=\"52,31N\""},
		{"iTXt", "XML:com.adobe.xmp\x00\x01\x00\x00\x00" + packed.String()},
		{"zTXt", "Raw profile type exif\x00\x00" + packed.String()},
		{"tEXt", "exif:GPSLatitude\x00" + "52/1, 31/1, 12/1"},
		{"tEXt", "Comment\x00stays"},
	} {
		put = pngChunk(put, c[0], []byte(c[1]))
	}
	whole := bytes.Join([][]byte{file.Bytes()[:pngHead], put, file.Bytes()[pngHead:]}, nil)
	got := WithoutLocation(whole)
	if _, err := png.Decode(bytes.NewReader(got)); err != nil { // which looks at the check sums
		t.Error(err)
	}
	for _, gone := range []string{"\x5e\xed\x5e\xed", "52,31N", "52/1, 31/1", packed.String()} {
		if bytes.Contains(got, []byte(gone)) {
			t.Errorf("%q is still there", gone)
		}
	}
	if !bytes.Contains(got, []byte("Comment\x00stays")) || !bytes.Contains(got, []byte("software")) {
		t.Errorf("%q", got)
	}
	if same := WithoutLocation(file.Bytes()); &same[0] != &file.Bytes()[0] {
		t.Error("what has no place is copied")
	}
}

// FuzzWithoutLocation: any bytes are taken, the length stays but for PNG, and a second time
// there is nothing left to do.
func FuzzWithoutLocation(f *testing.F) {
	f.Add(located(binary.LittleEndian))
	f.Add(append([]byte("Exif\x00\x00"), located(binary.BigEndian)...))
	f.Add([]byte(`exif:GPSLatitude="1" exif:GPS>x<`))
	f.Add([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x05eXIfhello1234"))
	f.Add([]byte("\xa9xyz\x00\x05ab+1234"))
	f.Fuzz(func(t *testing.T, file []byte) {
		before := bytes.Clone(file)
		got := WithoutLocation(file)
		if !bytes.Equal(file, before) {
			t.Fatal("the file was changed")
		}
		if len(got) != len(file) && !bytes.HasPrefix(file, []byte("\x89PNG")) {
			t.Fatalf("%d bytes became %d", len(file), len(got))
		}
		if len(got) > len(file) {
			t.Fatalf("%d bytes became %d", len(file), len(got))
		}
	})
}

// JPEG and PNG take their metadata, also a profile of more than one segment.
func TestPlainMetadata(t *testing.T) {
	icc := bytes.Repeat([]byte("profile "), 20_000)
	exif := []byte("II*\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	jfif := []byte("\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x02\x00\x00\x01\x00\x01\x00\x00\xff\xd9")
	got, err := JPEG(jfif, Metadata{ICC: icc, EXIF: exif})
	if err != nil {
		t.Fatal(err)
	}
	var joined []byte
	parts := 0
	for at := 2; got[at+1] != 0xd9; {
		n := int(binary.BigEndian.Uint16(got[at+2:]))
		body := got[at+4 : at+2+n]
		switch got[at+1] {
		case 0xe1:
			if !bytes.Equal(body, append([]byte("Exif\x00\x00"), exif...)) {
				t.Errorf("EXIF: %q", body)
			}
		case 0xe2:
			parts++
			if int(body[12]) != parts || body[13] != 3 {
				t.Errorf("part %d says % x", parts, body[12:14])
			}
			joined = append(joined, body[14:]...)
		}
		at += 2 + n
	}
	if !bytes.Equal(joined, icc) {
		t.Errorf("a profile of %d bytes in %d parts", len(joined), parts)
	}
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 5, 4))); err != nil {
		t.Fatal(err)
	}
	got, err = PNG(file.Bytes(), Metadata{ICC: icc, EXIF: exif})
	if err != nil || !bytes.Contains(got, append([]byte("eXIf"), exif...)) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := png.Decode(bytes.NewReader(got)); err != nil {
		t.Error(err)
	}
	for _, f := range []func([]byte, Metadata) ([]byte, error){JPEG, PNG} {
		if _, err := f([]byte("\xff\xd8\xff\xe0\xff\xff and cut off here, of whatever kind"), Metadata{EXIF: exif}); err == nil {
			t.Error("what is cut off is taken")
		}
		if same, err := f(jfif, Metadata{}); err != nil || &same[0] != &jfif[0] {
			t.Errorf("nothing to put in: %v", err)
		}
	}
}
