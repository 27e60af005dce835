package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestImage(t *testing.T) {
	im := image{program: []byte("\x7fELF program"), name: "site:1", arch: "arm64", expose: "8080", health: true, args: []string{"serve"}}
	var a, b bytes.Buffer
	first, err := im.write(&a)
	if err != nil {
		t.Fatal(err)
	}
	second, err := im.write(&b)
	if err != nil || first != second || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Fatalf("two images differ: %s, %s, %v", first, second, err)
	}
	outer := entries(t, a.Bytes())
	for name, data := range outer { // a blob is named by its sum
		if sum, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digestOf(data) != "sha256:"+sum {
			t.Errorf("%s has the sum %s", name, digestOf(data))
		}
	}
	var legacy []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(outer["manifest.json"], &legacy); err != nil || len(legacy) != 1 || len(legacy[0].Layers) != 1 {
		t.Fatalf("manifest.json: %s, %v", outer["manifest.json"], err)
	}
	var config struct {
		Config struct {
			User        string
			Healthcheck struct {
				Test     []string
				Interval int64
			}
		}
		Rootfs struct {
			IDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(outer[legacy[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	layer := outer[legacy[0].Layers[0]]
	if config.Config.User != "65532:65532" || len(config.Rootfs.IDs) != 1 || config.Rootfs.IDs[0] != digestOf(layer) {
		t.Errorf("the config is %s", outer[legacy[0].Config])
	}
	if h := config.Config.Healthcheck; strings.Join(h.Test, " ") != "CMD /millrace health" || h.Interval != 30e9 {
		t.Errorf("Docker asks for its health by %+v", h)
	}
	files := entries(t, layer)
	if !bytes.Equal(files["millrace"], im.program) {
		t.Error("the program is another one")
	}
	if n := bytes.Count(files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")); n < 50 {
		t.Errorf("%d certificates", n)
	}
}

func TestNoProgram(t *testing.T) {
	dir := t.TempDir()
	script, out := filepath.Join(dir, "script"), filepath.Join(dir, "x.tar")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-program", script, "-o", out}); err == nil || !strings.Contains(err.Error(), "GOOS=linux") {
		t.Errorf("a script: %v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

func entries(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
