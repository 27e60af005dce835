package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestThisProgram reads the test's own program.
func TestThisProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{"-version", "1.2.3", self}, &out); err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(out.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Metadata.Component.Version != "1.2.3" || len(b.Components) == 0 || b.Components[0].Name != "std" {
		t.Errorf("the list is %s", out.String())
	}
}

func TestNoGoProgram(t *testing.T) {
	if err := run([]string{"main.go"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "go build") {
		t.Errorf("a source file: %v", err)
	}
	if err := run(nil, &bytes.Buffer{}); err == nil {
		t.Error("nothing at all is accepted")
	}
}
