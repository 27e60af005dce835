// Package embed is what of the experiment embed-vs-disk is code: the flags of the
// programs that have files in them, and tables of what their answers are made of.
package embed

import (
	"context"
	"crypto/sha1" // the length of a commit's name, not a proof of anything
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"millrace/lab/experiment"
	"millrace/lab/site"
)

const (
	// base is the arm that the others are compared with.
	base = "nethttp-disk"
	// sized is net/http with the curve's files in it.
	sized = "nethttp-embed-sizes"
)

// Hooks are those of the experiment.
func Hooks(r *experiment.Run) experiment.Hooks {
	return experiment.Hooks{
		Prepare: func(context.Context) error { return flags(r) },
		Report: func() {
			r.Res.Tables = append(r.Res.Tables, sizes(r.Res), answerBytes(r.Res, r.Probes()), headers(r.Res, r.Probes()))
			curve(r)
		},
	}
}

// flags adds to those of the two programs that have files of their own.
func flags(r *experiment.Run) error {
	for i := range r.Spec.Programs {
		p := &r.Spec.Programs[i]
		switch p.Key {
		case "nethttp-ldflags":
			p.Flags = append(p.Flags, ldflags(site.Small()))
		case sized:
			if r.Env.Bench == nil {
				continue
			}
			name, err := overlay(r)
			if err != nil {
				return err
			}
			p.Flags = append(p.Flags, "-overlay="+name)
		}
	}
	return nil
}

// overlay writes the file for go build's -overlay that puts the curve's files into the
// folder that the subjects embed: so megabytes of noise can be in an executable without
// being in the repository. They lie in one place for all runs, since the flags name it
// and each set of flags has an executable of its own.
func overlay(r *experiment.Run) (name string, err error) {
	dir, into := filepath.Join(r.Env.Bench.Dir, "out", "lab", "site-sizes"), filepath.Join(r.Env.Bench.Dir, "subjects", "fileserver", "files")
	var files []site.File
	replace := map[string]string{}
	for size := leastSize; size <= mostSize; size *= 2 {
		f := site.Sized(size)
		files = append(files, f)
		at := filepath.FromSlash(f.Name)
		replace[filepath.Join(into, at)] = filepath.Join(dir, at)
	}
	name = filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = site.Write(dir, files)
	}
	if err == nil {
		err = os.WriteFile(name, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("writing the overlay of the embedded files: %w", err)
	}
	return name, nil
}

// ldflags put every file into a variable of package main: text as it is,
// images in base64, since a flag can hold no zero byte.
func ldflags(files []site.File) string {
	var b strings.Builder
	set := func(name, value string) {
		// The go command splits at white space outside quotes and knows no
		// escapes; no text of the site holds this quote (a test sees to it).
		fmt.Fprintf(&b, " -X 'main.%s=%s'", name, value)
	}
	hash := sha1.New()
	for _, f := range files {
		hash.Write(f.Content())
		if f.Binary() {
			set(f.Variable, base64.StdEncoding.EncodeToString(f.Content()))
		} else {
			set(f.Variable, string(f.Content()))
		}
	}
	set("gitHash", hex.EncodeToString(hash.Sum(nil)))
	return "-ldflags=" + b.String()[1:]
}
