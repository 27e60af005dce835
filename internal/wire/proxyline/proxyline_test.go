package proxyline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
)

// v2 is a header of version 2.
func v2(command, family byte, rest string) string {
	return signature + string([]byte{command, family}) + string(binary.BigEndian.AppendUint16(nil, uint16(len(rest)))) + rest
}

var (
	four = "\xc6\x33\x64\x01\x0a\x00\x00\x01\x12\x67\x01\xbb"
	six  = "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01" + strings.Repeat("\x00", 16) + "\x12\x67\x01\xbb"
)

func TestRead(t *testing.T) {
	for header, want := range map[string]string{
		"PROXY TCP4 198.51.100.1 10.0.0.1 4711 443\r\n":     "198.51.100.1:4711",
		"PROXY TCP6 2001:db8::1 ::1 4711 443\r\n":           "[2001:db8::1]:4711",
		"PROXY TCP6 ::ffff:198.51.100.1 ::1 4711 443\r\n":   "198.51.100.1:4711",
		"PROXY UNKNOWN\r\n":                                 "none",
		"PROXY UNKNOWN what ever this is\r\n":               "none",
		v2(0x21, 0x11, four):                                "198.51.100.1:4711",
		v2(0x21, 0x11, four+"\x20\x00\x03abc"):              "198.51.100.1:4711",
		v2(0x21, 0x21, six):                                 "[2001:db8::1]:4711",
		v2(0x20, 0x00, ""):                                  "none",
		v2(0x20, 0x11, four):                                "none",
		v2(0x21, 0x00, ""):                                  "none",
		v2(0x21, 0x31, strings.Repeat("x", 216)):            "none",
		"PROXY TCP4 198.51.100.1 10.0.0.1 04711 443\r\n":    "",
		"PROXY TCP4 198.51.100.1 10.0.0.1 65536 443\r\n":    "",
		"PROXY TCP4 198.51.100.1 10.0.0.1 -1 443\r\n":       "",
		"PROXY TCP4 198.51.100.1  10.0.0.1 4711 443\r\n":    "",
		"PROXY TCP4 198.51.100.1 10.0.0.1 4711 443\n":       "",
		"PROXY TCP4 198.51.100.1 10.0.0.1 4711\r\n":         "",
		"PROXY TCP4 2001:db8::1 ::1 4711 443\r\n":           "",
		"PROXY TCP6 198.51.100.1 10.0.0.1 4711 443\r\n":     "",
		"PROXY TCP6 fe80::1%eth0 ::1 4711 443\r\n":          "",
		"PROXY UDP4 198.51.100.1 10.0.0.1 4711 443\r\n":     "",
		"PROXY TCP4 " + strings.Repeat("1", 200) + "\r\n":   "",
		"PROXY TCP4 198.51":                                 "",
		v2(0x31, 0x11, four):                                "",
		v2(0x22, 0x11, four):                                "",
		v2(0x21, 0x12, four):                                "",
		v2(0x21, 0x11, four[:11]):                           "",
		v2(0x21, 0x21, four):                                "",
		v2(0x21, 0x11, four+strings.Repeat("x", maxBinary)): "",
		signature + "\x21\x11\x00\x0cabc":                   "",
		signature:                                           "",
	} {
		for name, from := range map[string]io.Reader{"at once": strings.NewReader(header + "GET"), "byte by byte": iotest.OneByteReader(strings.NewReader(header + "GET"))} {
			client, err := Read(from)
			got := client.String()
			if client == (netip.AddrPort{}) {
				got = "none"
			}
			if err != nil {
				got = ""
			}
			if got != want {
				t.Errorf("%q %s: %s, %v, not %s", header, name, got, err, want)
			}
			if rest, _ := io.ReadAll(from); want != "" && string(rest) != "GET" {
				t.Errorf("%q %s: %q is left", header, name, rest)
			}
		}
	}
	for _, text := range []string{"GET / HTTP/1.1\r\n", "\x16\x03\x01", "PROXX", "P", "\r\n\r\nG"} {
		_, err := Read(strings.NewReader(text))
		if want := text != "P"; errors.Is(err, ErrNone) != want || err == nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzRead: what is taken begins like a header, and never more of it is read than
// its length.
func FuzzRead(f *testing.F) {
	f.Add([]byte("PROXY TCP4 198.51.100.1 10.0.0.1 4711 443\r\nGET /"))
	f.Add([]byte(v2(0x21, 0x21, six) + "GET"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		client, err := Read(r)
		if err != nil {
			return
		}
		used := len(b) - r.Len()
		if !Begins(b) || used > 16+maxBinary {
			t.Fatalf("%q: %s", b, client)
		}
		if again, err := Read(bytes.NewReader(b[:used])); err != nil || again != client {
			t.Fatalf("%q alone: %s, %v", b[:used], again, err)
		}
		if b[0] == 'P' && !bytes.HasSuffix(b[:used], []byte("\r\n")) {
			t.Fatalf("%q", b[:used])
		}
	})
}

// TestAppend: what is written is read as the same, by both forms.
func TestAppend(t *testing.T) {
	port := netip.MustParseAddrPort
	for _, c := range []struct {
		from, to netip.AddrPort
		v1, read string
	}{
		{port("198.51.100.1:4711"), port("10.0.0.1:443"), "PROXY TCP4 198.51.100.1 10.0.0.1 4711 443\r\n", "198.51.100.1:4711"},
		{port("[::ffff:198.51.100.1]:4711"), port("10.0.0.1:443"), "PROXY TCP4 198.51.100.1 10.0.0.1 4711 443\r\n", "198.51.100.1:4711"},
		{port("[2001:db8::1]:4711"), port("[2001:db8::2]:443"), "PROXY TCP6 2001:db8::1 2001:db8::2 4711 443\r\n", "[2001:db8::1]:4711"},
		{port("[fe80::1%eth0]:4711"), port("[fe80::2%eth0]:443"), "PROXY TCP6 fe80::1 fe80::2 4711 443\r\n", "[fe80::1]:4711"},
		{port("[2001:db8::1]:4711"), port("10.0.0.1:443"), "PROXY TCP6 2001:db8::1 ::ffff:10.0.0.1 4711 443\r\n", "[2001:db8::1]:4711"},
		{netip.AddrPort{}, port("10.0.0.1:443"), "PROXY UNKNOWN\r\n", "none"},
		{port("198.51.100.1:4711"), netip.AddrPort{}, "PROXY UNKNOWN\r\n", "none"},
	} {
		if got := string(Append(nil, V1, c.from, c.to)); got != c.v1 {
			t.Errorf("%v to %v: %q, want %q", c.from, c.to, got, c.v1)
		}
		for _, v := range []Version{V1, V2} {
			r := bytes.NewReader(append(Append(nil, v, c.from, c.to), "GET"...))
			client, err := Read(r)
			got := "none"
			if client.IsValid() {
				got = client.String()
			}
			if err != nil || got != c.read || r.Len() != 3 {
				t.Errorf("version %d of %v to %v is read as %s with %d bytes left (%v), want %s and 3", v, c.from, c.to, got, r.Len(), err, c.read)
			}
		}
	}
}
