package outside

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"millrace"
	"millrace/cache"
	"millrace/cache/purge"
	"millrace/images"
	"millrace/static"
	"millrace/websocket"
	"millrace/websocket/channels"
)

func get(t *testing.T, c *http.Client, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// mounted is a job below a path of a server of net/http, as any program has one.
func mounted(t *testing.T, path string, h http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(path+"/", http.StripPrefix(path, h))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL + path
}

func TestStatic(t *testing.T) {
	h, err := static.New(fstest.MapFS{"index.html": {Data: []byte("hello")}}, static.Options{
		CacheControl: []static.CacheRule{{Match: "*.html", Value: "max-age=60"}},
		Memory:       16 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	resp, body := get(t, http.DefaultClient, mounted(t, "/site", h)+"/")
	if body != "hello" || resp.Header.Get("Cache-Control") != "max-age=60" {
		t.Errorf("%q, %v", body, resp.Header)
	}
}

func TestCache(t *testing.T) {
	n := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.Header().Set("Surrogate-Key", "news")
		fmt.Fprint(w, n)
	}))
	defer api.Close()
	o := cache.To(api.URL)
	o.TTL = time.Hour
	h, err := cache.New(o, cache.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	url := mounted(t, "/api", h)
	for range 3 {
		if _, body := get(t, http.DefaultClient, url+"/x"); body != "1" {
			t.Errorf("%q", body)
		}
	}
	if err := h.Purge(t.Context(), purge.Selector{Tag: "news", Hard: true}); err != nil {
		t.Fatal(err)
	}
	if _, body := get(t, http.DefaultClient, url+"/x"); body != "2" {
		t.Errorf("after the purge: %q", body)
	}
}

func TestImages(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "a.png"))
	if err != nil {
		t.Fatal(err)
	}
	const side = 256 // rings: WebP does far better than PNG
	picture := image.NewRGBA(image.Rect(0, 0, side, side))
	for x := range side {
		for y := range side {
			shade := uint8(127 + 120*math.Sin(math.Hypot(float64(x), float64(y))/7))
			picture.Set(x, y, color.RGBA{shade, 255 - shade, uint8(x), 255})
		}
	}
	if err := png.Encode(f, picture); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour) // a picture that has just changed is left alone
	if err := os.Chtimes(f.Name(), past, past); err != nil {
		t.Fatal(err)
	}
	files, err := static.Open(dir, static.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	h, err := images.New(images.Options{Formats: []string{"webp"}, Store: t.TempDir(), Engine: "embedded"}, images.Deps{Source: files, Scope: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	url := mounted(t, "/img", h)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		resp, _ := get(t, http.DefaultClient, url+"/a.png", "Accept", "image/webp")
		if resp.Header.Get("Content-Type") == "image/webp" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s, and no WebP came", resp.Header.Get("Content-Type"))
		}
	}
}

func TestWebSocket(t *testing.T) {
	const key = "0123456789abcdef"
	h, err := websocket.New(websocket.Options{Channels: &channels.Options{Keys: []string{key}}}, websocket.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	url := mounted(t, "/live", h)
	defer h.Close()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/sse?channel=news", nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "data: ") {
			if !strings.Contains(line, "it works") {
				t.Error(line)
			}
			return
		}
		if strings.HasPrefix(line, "id: ") {
			post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/publish?channel=news", strings.NewReader("it works"))
			if err != nil {
				t.Fatal(err)
			}
			post.Header.Set("Authorization", "Bearer "+key)
			resp, err := http.DefaultClient.Do(post)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
	}
	t.Error("the stream ended")
}

// certificate writes one for 127.0.0.1.
func certificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{{127, 0, 0, 1}}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return cert, key, roots
}

// TestServer runs the whole server, plain, over TLS and over HTTP/2, with jobs of
// every kind and a handler of this module that holds a job itself.
func TestServer(t *testing.T) {
	cert, key, roots := certificate(t)
	files, err := static.New(fstest.MapFS{"x.txt": {Data: []byte("within")}}, static.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	asked := 0
	own := http.NewServeMux()
	own.HandleFunc("/own/hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.FormValue("name")) })
	own.Handle("/own/files/", millrace.Public(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.StripPrefix("/own/files", files).ServeHTTP(w, r)
	})))
	srv, err := millrace.New(millrace.Config{
		Listen: []string{"127.0.0.1:0"},
		TLS:    millrace.TLS{Listen: []string{"127.0.0.1:0"}, Cert: cert, Key: key},
		Sites: []millrace.Site{{Routes: map[string]millrace.Route{
			"/":      {Files: fstest.MapFS{"index.html": {Data: []byte("embedded")}}},
			"/own/":  {Handler: own},
			"/echo":  {WebSocket: &websocket.Options{Echo: &websocket.Echo{}}},
			"/moved": {Redirect: "/"},
		}}},
		YAML: "limits: {body_bytes: 1KiB}\nsites: [{routes: {/yaml: {respond: from YAML}}}]",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	client := &http.Client{Transport: transport}
	for _, url := range srv.Addrs() {
		before := asked
		for range 4 {
			for path, want := range map[string]string{
				"/": "embedded", "/own/hello?name=Ada": "hello Ada", "/own/files/x.txt": "within", "/moved": "embedded", "/yaml": "from YAML",
			} {
				resp, body := get(t, client, url+path)
				if resp.StatusCode != http.StatusOK || body != want {
					t.Errorf("%s%s: %d %q, want %q", url, path, resp.StatusCode, body, want)
				}
				if strings.HasPrefix(url, "https") && resp.ProtoMajor != 2 {
					t.Errorf("%s came over %s", url, resp.Proto)
				}
			}
		}
		if n := asked - before; n == 0 || n == 4 {
			t.Errorf("%s: the handler of the file was asked %d times of 4", url, n)
		}
		resp, err := client.Post(url+"/own/hello", "text/plain", strings.NewReader(strings.Repeat("x", 2000)))
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("a body beyond the limit: %s", resp.Status)
			}
		}
	}
	transport.CloseIdleConnections()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServe is the lane under another program's router, by two lines.
func TestServe(t *testing.T) {
	ln, err := millrace.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- millrace.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "mine") }))
	}()
	if _, body := get(t, http.DefaultClient, "http://"+ln.Addr().String()); body != "mine" {
		t.Errorf("%q", body)
	}
	http.DefaultClient.CloseIdleConnections()
	ln.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
