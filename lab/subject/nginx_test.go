package subject

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const nginxTemplate = "../../bench/peers/nginx/nginx.conf.tmpl"

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
}
