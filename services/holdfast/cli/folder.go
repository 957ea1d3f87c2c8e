package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// rooted makes a relative sandbox.hostFolder of a runtime absolute: it is meant from
// where the file lies, so that `hostFolder: .` is the folder of the file, wherever it
// is. What doesn't say one stays as it was written.
func rooted(file string, body []byte) ([]byte, error) {
	var spec map[string]any
	if err := yaml.Unmarshal(body, &spec); err != nil {
		return nil, fmt.Errorf("%s is no YAML: %w", file, err)
	}
	sandbox, _ := spec["sandbox"].(map[string]any)
	folder, _ := sandbox["hostFolder"].(string)
	if folder == "" || filepath.IsAbs(folder) {
		return body, nil
	}
	if file == "-" {
		return nil, fmt.Errorf("sandbox.hostFolder %q is relative, and the input is nowhere: make it absolute", folder)
	}
	at, err := filepath.Abs(filepath.Join(filepath.Dir(file), folder))
	if err != nil {
		return nil, fmt.Errorf("sandbox.hostFolder: %w", err)
	}
	sandbox["hostFolder"] = at
	return json.Marshal(spec)
}
