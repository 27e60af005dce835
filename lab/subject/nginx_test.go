package subject

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const nginxTemplate = "../bench/peers/nginx/nginx.conf.tmpl"

func TestWriteNginxConfig(t *testing.T) {
	dir := t.TempDir()
	fields := map[string]string{"Site": "/s", "Address": "127.0.0.1:81", "Socket": "/d/s", "Log": ""}
	if err := WriteNginxConfig(dir, nginxTemplate, fields); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"daemon off;", "worker_processes 2;", "sendfile   on;", "open_file_cache ", "access_log off;",
		"listen 127.0.0.1:81 ", "listen unix:/d/s ", "root  /s;", "pid " + dir + "/nginx.pid;",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, site := range []string{"/a b", "/a;b", "/$a", "/a'"} {
		fields["Site"] = site
		if err := WriteNginxConfig(dir, nginxTemplate, fields); err == nil {
			t.Errorf("the folder %q was accepted", site)
		}
	}
	delete(fields, "Site")
	if err := WriteNginxConfig(dir, nginxTemplate, fields); err == nil {
		t.Error("a field of the template is missing, and that was accepted")
	}
	fields["Site"], fields["Log"] = "/s", "/d/access.log"
	if err := WriteNginxConfig(dir, nginxTemplate, fields); err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(filepath.Join(dir, "nginx.conf"))
	if err != nil || !strings.Contains(string(text), "access_log /d/access.log combined ") || strings.Contains(string(text), "access_log off") {
		t.Errorf("with a log: %v\n%s", err, text)
	}
}

func TestWriteConfigRefuses(t *testing.T) {
	template := filepath.Join(t.TempDir(), "x.tmpl")
	for text, want := range map[string]string{"a {{.Other}}": `no field "Other"`, "{{if .Dir}}": "is all that a template can have"} {
		if err := os.WriteFile(template, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := WriteConfig(template+".out", template, map[string]string{"Dir": "d"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
