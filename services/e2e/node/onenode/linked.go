package onenode

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// library is a file that ldd names, by its path.
var library = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// linked are files, those of folders, and the libraries that the programs among them are
// linked to: each by its own path, which is where a program looks for it.
func linked(from []string) (map[string]string, error) {
	all := map[string]string{}
	for _, each := range from {
		if err := filepath.WalkDir(each, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			// A link's target is what is copied; a folder's is there by its own name.
			if to, err := os.Stat(path); err != nil || to.IsDir() {
				return err
			}
			all[path] = path
			if !program(path) {
				return nil
			}
			out, err := exec.Command("ldd", path).CombinedOutput()
			if err != nil {
				return fmt.Errorf("what %s is linked to: %w: %s", path, err, out)
			}
			for _, found := range library.FindAllStringSubmatch(string(out), -1) {
				all[found[1]] = found[1]
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// program says whether a file is a program or a library.
func program(path string) bool {
	f, err := elf.Open(path)
	return err == nil && f.Close() == nil
}
