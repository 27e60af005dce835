package static

import (
	"strings"
	"testing"

	"millrace/internal/wire/compress"
)

func TestContentHashed(t *testing.T) {
	for _, name := range []string{
		"app.3f9a1c2b.js", "index-BX3k9Lq2.js", "main.abc12345.chunk.css", "logo.5d5d9eef.svg", "app.3f9a1c2b.js.map",
		"chunk-K3WQZ2LN.js", "5e1c0de19f5e1c0de19f.css", "app.3f9a1c2b.min.js", "vendor~main.0a1b2c3d4e5f6a7b.js",
		"inter-v13-1a2b3c4d5e6f.woff2", "index-D4_kx-9Z.css",
	} {
		if !contentHashed(name) {
			t.Errorf("%s is hashed", name)
		}
	}
	for _, name := range []string{
		"index.html", "app.js", "jquery-3.7.1.min.js", "report-20240115.pdf", "2024-01-15.html", "photo-IMG12345.jpg",
		"photo-IMG_1234.jpg", "case-iPhone4S.jpg", "iPhone15.jpg", "summary-Report24.js", "deadbeef.js", "defaced.css",
		"a-deadbeef.js", "bootstrap.bundle.min.js", "3f9a1c2b.js", "f47ac10b-58cc-4372-a567-0e02b2c3d479.jpg",
		"DSC-20240115.JPG", "README", ".3f9a1c2b", "", "x.", "app.3f9a1c2.js", "my-document.js", "UPPERCASE-FILENAME.js",
		"release-v2024a1b.zip", "song-Track001.mp3", "12345678.js", "v1.12345678.js",
	} {
		if contentHashed(name) {
			t.Errorf("%s is an ordinary name", name)
		}
	}
}

func TestMediaTypes(t *testing.T) {
	if len(mediaTypes) < 80 {
		t.Errorf("only %d types", len(mediaTypes))
	}
	for file, want := range map[string]string{
		"a.html": "text/html; charset=utf-8", "a.HTML": "text/html; charset=utf-8", "a.js": "text/javascript; charset=utf-8",
		"a.mjs": "text/javascript; charset=utf-8", "a.json": "application/json", "a.svg": "image/svg+xml; charset=utf-8",
		"a.wasm": "application/wasm", "a.woff2": "font/woff2", "a.webmanifest": "application/manifest+json",
		"a.avif": "image/avif", "a.md": "text/markdown; charset=utf-8", "a.unknown": "application/octet-stream",
		"README": "application/octet-stream", "dir.js/file": "application/octet-stream", "a.tar.gz": "application/gzip",
	} {
		if got := typeOf(file).name; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
	for ext, kind := range mediaTypes {
		if ext != strings.ToLower(ext) || ext[0] != '.' || strings.Count(kind.name, "/") != 1 {
			t.Errorf("%s: %s", ext, kind.name)
		}
		if strings.HasPrefix(kind.name, "text/") && (!kind.compressible || !strings.HasSuffix(kind.name, charset)) {
			t.Errorf("%s: text without charset or compression", ext)
		}
		if compress.Worth(kind.name, compress.MinSize) != kind.compressible {
			t.Errorf("%s: %s is compressible %t here, not so by package compress", ext, kind.name, kind.compressible)
		}
	}
}

func TestLastSegment(t *testing.T) {
	for target, want := range map[string]string{
		"/a/b": "b", "/a/b?c/d": "b", "/a/": "", "/": "", "*": "", "": "", "/a%2Fb": "a%2Fb", "/..": "", "/.": "",
		"http://host/x": "x", "http://host": "", `/a\b`: "a%5Cb",
	} {
		if got := lastSegment(target); got != want {
			t.Errorf("%q: %q, want %q", target, got, want)
		}
	}
}

// TestPrivate: sources, dumps and keys do not exist, nor do their copies.
func TestPrivate(t *testing.T) {
	for list, names := range map[string]map[string]bool{
		"": {
			"a.php": true, "A.PHP": true, "x/y.phtml": true, "wp-config.php~": true, "wp-config.php.bak": true, "dump.sql.gz": true,
			"dump.sql.old.zip": true, "id_rsa": true, "id_rsa.pub": false, "server.key": true, "x/cert.pem": true, ".env": true, ".env.local": true,
			"a.php/b.html": true, ".git/config": true, "page.php.html": false, "a.html": false, "php": false, "sql.css": false, "keys.js": false,
			"config.php.1": true, "config.php.backup": true, "config.php.swo": true, "config.php.dist": true, "#config.php#": true, "config.php.": true,
			"config.php ": true, "dump.sql (copy)": true, "dump.sql.lz4": true, "dump.sql.zstd": true, "dump.sql.Z": true, "dump.sql.rar": true,
			"a.sql.old.tar.gz.zip": true, "shop.sqlite-wal": true, "shop.sqlite3-journal": true, "AuthKey.p8": true, "id_ed25519_sk": true,
			"db.inc": true, "site.tfstate": true, "htpasswd": true, "jquery-3.7.1": false, "v1.2.3": false, "C#": false, "a.html.1": false, "...": false, "1": false,
			"mykey": false, "archive.zip": false, "a.html.gz": false, "photo.jpg": false, "": false,
		},
		"off":           {"a.php": false, ".env": false, "id_rsa": false},
		"*.doc":         {"a.php": false, "b.DOC": true, "b.doc.gz": true},
		"default *.doc": {"a.php": true, "b.doc": true, "b.txt": false},
		"[ab]?.txt":     {"ax.txt": true, "cx.txt": false},
		"drafts":        {"drafts/a.html": true, "x/Drafts/a.html": true, "drafts.html": false},
	} {
		p := newPrivate(strings.Fields(list))
		for name, want := range names {
			if got := p.covers(name); got != want {
				t.Errorf("%q with the list %q: %t, want %t", name, list, got, want)
			}
		}
	}
	for _, bad := range [][]string{{"["}, {""}, {"a/b"}, {"off", "*.doc"}} {
		if faults := (Options{Private: bad}).Check(); faults["private"] == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
