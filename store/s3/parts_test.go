package s3

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/store"
)

func TestURL(t *testing.T) {
	for url, want := range map[string]target{
		"s3://host/bucket":                         {host: "host", bucket: "bucket", secure: true},
		"s3://host:9000/bucket/":                   {host: "host:9000", bucket: "bucket", secure: true},
		"s3+http://[::1]:9000/bucket/a/b":          {host: "[::1]:9000", bucket: "bucket", prefix: "a/b/"},
		"s3://k:a%2Fb%2Bc%40@host/bucket/p/":       {host: "host", bucket: "bucket", prefix: "p/", key: "k", secret: "a/b+c@", secure: true},
		"s3://host/bucket?region=eu-central-1":     {host: "host", bucket: "bucket", region: "eu-central-1", secure: true},
		"s3://host/bucket?ca=x&skip_verify=true":   {host: "host", bucket: "bucket", ca: "x", skipVerify: true, secure: true},
		"s3://host/my.bucket?skip_verify=anything": {host: "host", bucket: "my.bucket", secure: true},
	} {
		got, err := parseURL(url)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
		if err := (Options{URL: url}).Check(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	const secret = "seCret"
	for url, says := range map[string]string{
		"":                                   "the scheme",
		"https://host/bucket":                "the scheme",
		"s3:///bucket":                       "no host",
		"s3://host":                          "no bucket",
		"s3://host/":                         "no bucket",
		"s3://host/ab":                       "name of a bucket",
		"s3://host/bucket/../x":              "prefix",
		"s3://host/bucket/a//b":              "prefix",
		"s3://host/bucket/%ff":               "prefix",
		"s3://host/bucket?regoin=x":          `"regoin"`,
		"s3+http://host/bucket?ca=x":         "TLS",
		"s3://key@host/bucket":               "only one",
		"s3://key:" + secret + "/x@h/bucket": "%2F",
		"s3://key:12/" + secret + "@h/b":     "%2F",
		"s3://key:%zz" + secret + "@h/b":     "%2F",
		"s3://" + secret + "@h/bucket":       "only one",
		"s3://host/bucket?" + secret + "=%z": "?region",
	} {
		err := Options{URL: url}.Check()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", url, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the secret is repeated: %v", url, err)
		}
	}
}

func TestCertificates(t *testing.T) {
	const url = "s3://k:s@host/bucket?ca="
	if _, err := Open(Options{URL: url + "/does/not/exist"}); err == nil {
		t.Error("a file of certificates that does not exist: no error")
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{URL: url + file}); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("a file without certificates: %v", err)
	}
}

// TestSpool: bodies go to a file when they are large, or when all together are.
func TestSpool(t *testing.T) {
	s := &Store{o: Options{Largest: 8 << 20}}
	s.memory.most, s.spooled.most = 3<<20, 9<<20
	content := make([]byte, 4<<20)
	for i := range content {
		content[i] = byte(i % 251)
	}
	var all []*spool
	files := 0
	for _, size := range []int{0, 1, 1 << 20, 1 << 20, 1 << 20, 1 << 19, 4 << 20} {
		b := &spool{s: s}
		all = append(all, b)
		for at := 0; at < size; at += 10_000 {
			if _, err := b.Write(content[at:min(at+10_000, size)]); err != nil {
				t.Fatalf("%d bytes at %d: %v", size, at, err)
			}
		}
		if b.file != nil {
			files++
		}
		got := make([]byte, size+1)
		if n, err := b.ReadAt(got, 0); n != size || !errors.Is(err, io.EOF) || !bytes.Equal(got[:n], content[:size]) {
			t.Errorf("read %d of %d bytes, %v", n, size, err)
		}
	}
	if files < 2 || files > 4 {
		t.Errorf("%d of %d bodies are in files", files, len(all))
	}
	if m, f := s.memory.held.Load(), s.spooled.held.Load(); m > s.memory.most || f > s.spooled.most {
		t.Errorf("%d and %d bytes are held", m, f)
	}
	b := &spool{s: s}
	var err error
	for range 8 {
		if _, err = b.Write(content[:1<<20]); err != nil {
			break
		}
	}
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("writing more than all may hold: %v", err)
	}
	for _, b := range append(all, b) {
		b.close()
	}
	if m, f := s.memory.held.Load(), s.spooled.held.Load(); m != 0 || f != 0 {
		t.Errorf("%d and %d bytes are counted at the end", m, f)
	}
}

// FuzzFront: a front is what was written, or an error; nothing is too large.
func FuzzFront(f *testing.F) {
	f.Add(appendFront(nil, front{key: []byte("key"), head: []byte("head"), size: 4, sum: 1}), int64(4))
	f.Add([]byte(version), int64(0))
	f.Add(append([]byte(version), bytes.Repeat([]byte{0xff}, 40)...), int64(10))
	f.Fuzz(func(t *testing.T, b []byte, body int64) {
		total := int64(len(b)) + body
		got, err := readFront(bytes.NewReader(b), total)
		if err != nil {
			return
		}
		if got.size < 0 || len(got.head) > mostHead || len(got.key) > mostKey {
			t.Fatalf("%+v", got)
		}
		n := preamble + len(got.key) + len(got.head)
		if again := appendFront(nil, got); !bytes.Equal(again, b[:n]) || total != int64(n)+got.size {
			t.Fatalf("%x was read, and is written %x", b[:n], again)
		}
	})
}
