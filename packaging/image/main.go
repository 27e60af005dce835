// Image writes a container image without a container engine: one static program,
// the certificates of public CAs, a user without rights, and nothing else.
//
//	go run ./packaging/image -program FILE -arch amd64 -o millrace.tar [-expose 8080] [-- ARG ...]
//	docker load -i millrace.tar
//
// The program may be a packed site (docs/pack.md). The tar is an OCI image layout
// and a docker-archive at once. The same program makes the same bytes: all times
// are zero, and the certificates come from a module that go.sum pins.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user and group that the program runs as: Debian's and
// distroless's nonroot.
const nobody = 65532

// image is what to write.
type image struct {
	program []byte
	name    string // of the image, with a tag
	arch    string
	expose  string
	health  bool // the program has the verb health
	args    []string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	program := flags.String("program", "", "the static program for linux")
	out := flags.String("o", "", "the tar to write")
	im := image{}
	flags.StringVar(&im.name, "name", "millrace:latest", "name and tag")
	flags.StringVar(&im.arch, "arch", "amd64", "the program's GOARCH")
	flags.StringVar(&im.expose, "expose", "8080", "the port that it listens on")
	flags.BoolVar(&im.health, "health", false, "have Docker ask the program by its verb health whether it takes requests")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *program == "" || *out == "" {
		return errors.New("-program FILE and -o FILE are needed")
	}
	im.args = flags.Args()
	if im.program, err = os.ReadFile(*program); err != nil {
		return err
	}
	if !bytes.HasPrefix(im.program, []byte("\x7fELF")) {
		return fmt.Errorf("%s is no program for linux: build it with GOOS=linux CGO_ENABLED=0", *program)
	}
	// Beside it and renamed: there whole or not at all.
	f, err := os.CreateTemp(filepath.Dir(*out), ".image-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	digest, err := im.write(f)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), *out); err != nil {
		return err
	}
	fmt.Printf("%s  %s\n", digest, *out)
	return nil
}

// write writes the image and returns its digest, that of the manifest.
func (im image) write(w io.Writer) (digest string, err error) {
	layer, err := im.layer()
	if err != nil {
		return "", err
	}
	config := asJSON(im.config(digestOf(layer)))
	manifest := asJSON(map[string]any{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config":        descriptor("application/vnd.oci.image.config.v1+json", config),
		"layers":        []any{descriptor("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	entry := descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
	entry["annotations"] = map[string]string{"io.containerd.image.name": "docker.io/library/" + im.name, "org.opencontainers.image.ref.name": im.name}
	index := asJSON(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []any{entry}})
	legacy := asJSON([]any{map[string]any{"Config": blob(config), "RepoTags": []string{im.name}, "Layers": []string{blob(layer)}}})

	t := tar.NewWriter(w)
	for _, f := range []file{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644},
		{"index.json", index, 0o644},
		{"manifest.json", legacy, 0o644},
		{blob(manifest), manifest, 0o644},
		{blob(config), config, 0o644},
		{blob(layer), layer, 0o644},
	} {
		if err := f.write(t); err != nil {
			return "", err
		}
	}
	return digestOf(manifest), t.Close()
}

// layer is the image's file system.
func (im image) layer() ([]byte, error) {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	user := fmt.Sprintf("millrace:x:%d:%d::/data:/\n", nobody, nobody)
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, f := range []file{
		{"etc/", nil, 0o755},
		{"etc/passwd", []byte(user), 0o644},
		{"etc/group", fmt.Appendf(nil, "millrace:x:%d:\n", nobody), 0o644},
		{"etc/ssl/", nil, 0o755},
		{"etc/ssl/certs/", nil, 0o755},
		{"etc/ssl/certs/ca-certificates.crt", roots.Bytes(), 0o644},
		{"data/", nil, 0o750}, // certificates, what is cached: mount a volume
		{"site/", nil, 0o755}, // what is served: mount a folder
		{"tmp/", nil, 0o1777},
		{"millrace", im.program, 0o755},
	} {
		if err := f.write(t); err != nil {
			return nil, err
		}
	}
	err := t.Close()
	return b.Bytes(), err
}

// config says how the program is started.
func (im image) config(layer string) map[string]any {
	all := map[string]any{
		"architecture": im.arch,
		"os":           "linux",
		"created":      time.Unix(0, 0).UTC().Format(time.RFC3339),
		"config": map[string]any{
			"User":         fmt.Sprintf("%d:%d", nobody, nobody),
			"Entrypoint":   []string{"/millrace"},
			"Cmd":          im.args,
			"WorkingDir":   "/data",
			"ExposedPorts": map[string]any{im.expose + "/tcp": struct{}{}},
			"Env":          []string{"HOME=/data", "XDG_CACHE_HOME=/data/cache", "XDG_DATA_HOME=/data", "XDG_RUNTIME_DIR=/tmp"},
			"StopSignal":   "SIGTERM",
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{layer}},
		"history": []any{map[string]any{"created": "1970-01-01T00:00:00Z", "created_by": "millrace packaging/image"}},
	}
	if im.health { // Docker's own key: others leave it alone
		all["config"].(map[string]any)["Healthcheck"] = map[string]any{
			"Test":     []string{"CMD", "/millrace", "health"},
			"Interval": 30 * time.Second, "Timeout": 5 * time.Second, "StartPeriod": 10 * time.Second,
		}
	}
	return all
}

// file is an entry of a tar; a name that ends with a slash is a folder.
type file struct {
	name string
	data []byte
	mode int64
}

func (f file) write(t *tar.Writer) error {
	h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
	if f.name[len(f.name)-1] == '/' {
		h.Typeflag = tar.TypeDir
	}
	if f.name == "data/" {
		h.Uid, h.Gid = nobody, nobody
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(f.data)
	return err
}

func descriptor(mediaType string, data []byte) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": digestOf(data), "size": len(data)}
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blob(data []byte) string { return "blobs/sha256/" + digestOf(data)[len("sha256:"):] }

// asJSON has the keys of maps in order, so the same image has the same bytes.
func asJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return b
}
