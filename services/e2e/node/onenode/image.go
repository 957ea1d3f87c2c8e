package onenode

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"time"
)

// Image is made of binaries, in one layer, without a base.
type Image struct {
	// Name is its full name, as in localhost/holdfast:local.
	Name string
	// Files are what it holds: the path inside, and the file outside. All may be
	// executed by everybody.
	Files map[string]string
	// Here are files and folders of this machine that it has in the same place, each
	// program with the libraries that it is linked to.
	Here []string
	// Shell gives it busybox, as /bin/sh and under its other names.
	Shell bool
	// Entrypoint, Env and User are its configuration's.
	Entrypoint []string
	Env        []string
	User       string
}

// shellNames are those that tests and the chart use of busybox.
var shellNames = []string{
	"sh", "cat", "echo", "ls", "mkdir", "rm", "sleep", "tail", "head", "wc", "dd", "sync", "id", "env", "true", "false",
	"grep", "sed", "tr", "nc", "wget", "nslookup", "ping", "hostname", "touch", "printf", "seq", "stat", "uname", "dmesg",
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive writes an image as an OCI image layout in a tar.
type archive struct{ *tar.Writer }

func (a archive) file(name string, mode int64, content []byte) error {
	if err := a.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := a.Write(content)
	return err
}

func (a archive) blob(mediaType string, content []byte) (descriptor, error) {
	sum := sha256.Sum256(content)
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(content)}
	return d, a.file("blobs/sha256/"+d.Digest[len("sha256:"):], 0o644, content)
}

func (a archive) json(mediaType string, v any) (descriptor, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return a.blob(mediaType, raw)
}

// write makes the archive of an image.
func (i Image) write(w io.Writer, l layout) error {
	layer, err := i.layer(l)
	if err != nil {
		return err
	}
	a := archive{tar.NewWriter(w)}
	content, err := a.blob("application/vnd.oci.image.layer.v1.tar", layer)
	if err != nil {
		return err
	}
	config, err := a.json("application/vnd.oci.image.config.v1+json", map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{content.Digest}},
		"config": map[string]any{
			"Entrypoint": i.Entrypoint, "User": i.User, "WorkingDir": "/",
			"Env": append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, i.Env...),
		},
	})
	if err != nil {
		return err
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest, err := a.json(manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []descriptor{content},
	})
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": i.Name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}
	if err := a.file("index.json", 0o644, index); err != nil {
		return err
	}
	if err := a.file("oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	return a.Close()
}

// layer is the image's file system.
func (i Image) layer(l layout) ([]byte, error) {
	files, err := linked(i.Here)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, i.Files)
	if i.Shell {
		files["/bin/busybox"] = l.part("busybox")
	}
	var raw bytes.Buffer
	a := archive{tar.NewWriter(&raw)}
	made := map[string]bool{"/": true}
	if err := a.folder(made, "/tmp", 0o1777); err != nil {
		return nil, err
	}
	inside := make([]string, 0, len(files))
	for f := range files {
		inside = append(inside, f)
	}
	slices.Sort(inside)
	for _, f := range inside {
		content, err := os.ReadFile(files[f])
		if err != nil {
			return nil, err
		}
		if err := a.folder(made, path.Dir(f), 0o755); err != nil {
			return nil, err
		}
		if err := a.file(f[1:], 0o755, content); err != nil {
			return nil, err
		}
	}
	if i.Shell {
		for _, name := range shellNames {
			if err := a.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}); err != nil {
				return nil, err
			}
		}
	}
	return raw.Bytes(), a.Close()
}

func (a archive) folder(made map[string]bool, name string, mode int64) error {
	if made[name] {
		return nil
	}
	if err := a.folder(made, path.Dir(name), 0o755); err != nil {
		return err
	}
	made[name] = true
	return a.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name[1:] + "/", Mode: mode})
}

// Load makes an image and gives it to the node.
func (n *Node) Load(ctx context.Context, i Image) error {
	f, err := os.CreateTemp(n.path("images"), "*.tar")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := i.write(f, n.layout); err != nil {
		_ = f.Close()
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, n.part("ctr"), "--address", n.containerdSocket(), "--namespace", containerNS,
		"images", "import", f.Name()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("image %s: %w: %s", i.Name, err, out)
	}
	return nil
}
