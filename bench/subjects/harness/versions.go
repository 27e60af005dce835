package main

import (
	"bytes"
	"context"
	"os/exec"
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
