// Sbom lists the modules in a Go program as CycloneDX 1.5, from what the go
// command has written into it.
//
//	go run ./packaging/sbom -version 1.2.0 FILE > FILE.cdx.json
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
)

// bom is a CycloneDX document. It has no serial number and no time: the same
// program has the same one.
type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	version := flags.String("version", "", "of the program, where it does not know it itself")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("give it one program: sbom [-version V] FILE")
	}
	info, err := buildinfo.ReadFile(flags.Arg(0))
	if err != nil {
		return fmt.Errorf("%w: is it a program made by go build?", err)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(list(info, *version))
}

// list is the bom of a program.
func list(info *debug.BuildInfo, version string) bom {
	main := info.Main
	if version != "" {
		main.Version = version
	}
	program := module("application", &main)
	// How it was built, without this machine's paths.
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED", "-tags", "vcs.revision":
			program.Properties = append(program.Properties, property{"go:" + strings.TrimPrefix(s.Key, "-"), s.Value})
		}
	}
	std := strings.TrimPrefix(info.GoVersion, "go")
	b := bom{"CycloneDX", "1.5", 1, metadata{program}, []component{{Type: "library", Ref: "pkg:golang/std@" + std, Name: "std", Version: std, PURL: "pkg:golang/std@" + std}}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, module("library", m))
	}
	return b
}

func module(kind string, m *debug.Module) component {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := component{Type: kind, Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}} // a sum of the folder, not of a file
	}
	return c
}
