package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/wrk"
)

// versions asks every program that took part. One that does not say is listed
// as unknown: a run of twenty minutes is not lost for that.
func versions(ctx context.Context, arms []arm.Arm, p stage.Places, underWrk bool) []record.Version {
	has := func(program arm.Program) bool {
		return slices.ContainsFunc(arms, func(a arm.Arm) bool { return a.Program == program })
	}
	var list []record.Version
	add := func(program, version string) {
		if version == "" {
			version = "unknown"
		}
		list = append(list, record.Version{Program: program, Version: version})
	}
	if has(arm.Millrace) {
		version := strings.TrimPrefix(firstLine(ctx, p.Binary, "version"), "millrace ")
		if commit := firstLine(ctx, "git", "-C", p.Bench, "describe", "--always", "--dirty=, with changes"); commit != "" {
			version += ", commit " + commit
		}
		add("millrace", version)
	}
	add("Go", strings.TrimPrefix(runtime.Version(), "go"))
	if has(arm.Nginx) {
		_, version, _ := strings.Cut(firstLine(ctx, "nginx", "-v"), "nginx/")
		add("nginx", version)
	}
	if has(arm.Varnish) {
		_, version, _ := strings.Cut(firstLine(ctx, "varnishd", "-V"), "varnish-")
		version, _, _ = strings.Cut(version, " ")
		add("Varnish", version)
	}
	if has(arm.FastHTTP) {
		add("fasthttp", dependency(filepath.Join(p.Bin, "fasthttpfs"), "github.com/valyala/fasthttp"))
	}
	for _, peer := range []struct {
		program         arm.Program
		subject, module string
	}{
		{arm.GWS, "wsgws", "github.com/lxzan/gws"},
		{arm.Coder, "wscoder", "github.com/coder/websocket"},
		{arm.Gorilla, "wsgorilla", "github.com/gorilla/websocket"},
	} {
		if has(peer.program) {
			add(peer.module, dependency(filepath.Join(p.Bin, peer.subject), peer.module))
		}
	}
	if underWrk {
		version, _ := wrk.Version(ctx)
		add("wrk", strings.TrimPrefix(version, "wrk "))
	}
	return list
}

// converters are the versions of what bench/run images compares with.
func converters(ctx context.Context) (list []record.Version) {
	vips := strings.TrimPrefix(firstLine(ctx, "vips", "--version"), "vips-")
	webp := firstLine(ctx, "cwebp", "-version")
	score := firstLine(ctx, "python3", "-c", "import importlib.metadata as m; print(m.version('ssimulacra2'))")
	for _, v := range []record.Version{{Program: "vips", Version: vips}, {Program: "cwebp", Version: webp}, {Program: "ssimulacra2 (Python)", Version: score}} {
		if v.Version == "" {
			v.Version = "unknown, or not installed"
		}
		list = append(list, v)
	}
	return list
}

// firstLine is the first line of what a program prints, on either output.
func firstLine(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return strings.TrimSpace(string(line))
}

// dependency is the version of a module that a Go program is built with.
func dependency(program, module string) string {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return ""
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return d.Version
		}
	}
	return ""
}
