CREATE TABLE hpcflow_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT hpcflow_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE run (
	run_id VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	user_name VARCHAR NOT NULL, 
	project VARCHAR NOT NULL, 
	site VARCHAR NOT NULL, 
	framework VARCHAR NOT NULL, 
	run_dir VARCHAR NOT NULL, 
	partition VARCHAR NOT NULL, 
	nodes INTEGER NOT NULL, 
	gpus INTEGER NOT NULL, 
	gpu_type VARCHAR, 
	image VARCHAR, 
	parent_sweep VARCHAR, 
	estimated_cost_usd VARCHAR(64), 
	created_at VARCHAR(32) NOT NULL, 
	resources JSON NOT NULL, 
	command JSON NOT NULL, 
	params JSON NOT NULL, 
	data JSON NOT NULL, 
	tags JSON NOT NULL, 
	state VARCHAR NOT NULL, 
	cause VARCHAR, 
	started_at VARCHAR(32), 
	completed_at VARCHAR(32), 
	attempts INTEGER NOT NULL, 
	job_id VARCHAR, 
	train_step BIGINT, 
	total_train_steps BIGINT, 
	epoch FLOAT, 
	metrics JSON NOT NULL, 
	best_metric FLOAT, 
	final_model VARCHAR, 
	gpu_hours FLOAT, 
	cost_usd VARCHAR(64), 
	journal JSON NOT NULL, 
	journal_at VARCHAR(32), 
	bytes_read BIGINT NOT NULL, next_action VARCHAR, next_at VARCHAR(32), save_error VARCHAR, mirror_url VARCHAR, cost_su VARCHAR(64), is_estimate BOOLEAN DEFAULT 0 NOT NULL, next_rule VARCHAR, next_why VARCHAR, 
	PRIMARY KEY (run_id)
);
CREATE INDEX run_by_created_at ON run (created_at);
CREATE INDEX run_by_state ON run (state, journal_at);
CREATE TABLE attempt (
	run_id VARCHAR NOT NULL, 
	attempt INTEGER NOT NULL, 
	job_name VARCHAR NOT NULL, 
	job_id VARCHAR, 
	state VARCHAR NOT NULL, 
	raw_state VARCHAR, 
	cause VARCHAR, 
	reason VARCHAR, 
	rule VARCHAR, 
	partition VARCHAR, 
	nodes JSON NOT NULL, 
	submitted_at VARCHAR(32), 
	started_at VARCHAR(32), 
	ended_at VARCHAR(32), 
	exit_code INTEGER, 
	resume_from VARCHAR, 
	journal JSON NOT NULL, 
	report JSON NOT NULL, billed_by VARCHAR, elapsed_s FLOAT, gpu_hours FLOAT, cost_usd VARCHAR(64), cost_su VARCHAR(64), on_demand_usd VARCHAR(64), wasted_s FLOAT, bill_due_at VARCHAR(32), gpu_type VARCHAR, account VARCHAR, parts JSON, 
	PRIMARY KEY (run_id, attempt), 
	FOREIGN KEY(run_id) REFERENCES run (run_id) ON DELETE CASCADE
);
CREATE INDEX attempt_by_state ON attempt (state);
CREATE TABLE checkpoint (
	run_id VARCHAR NOT NULL, 
	path VARCHAR NOT NULL, 
	attempt INTEGER NOT NULL, 
	train_step BIGINT NOT NULL, 
	epoch FLOAT, 
	size_bytes BIGINT NOT NULL, 
	metrics JSON NOT NULL, 
	is_best BOOLEAN NOT NULL, 
	created_at VARCHAR(32) NOT NULL, removed VARCHAR, 
	PRIMARY KEY (run_id, path), 
	FOREIGN KEY(run_id) REFERENCES run (run_id) ON DELETE CASCADE
);
CREATE TABLE source (
	run_id VARCHAR NOT NULL, 
	path VARCHAR NOT NULL, 
	offset_bytes BIGINT NOT NULL, 
	in_long_line BOOLEAN NOT NULL, 
	skipped_lines INTEGER NOT NULL, 
	PRIMARY KEY (run_id, path), 
	FOREIGN KEY(run_id) REFERENCES run (run_id) ON DELETE CASCADE
);
CREATE TABLE lease (
	name VARCHAR NOT NULL, 
	holder VARCHAR NOT NULL, 
	host VARCHAR NOT NULL, 
	pid INTEGER NOT NULL, 
	fence BIGINT NOT NULL, 
	acquired_at VARCHAR(32) NOT NULL, 
	renewed_at VARCHAR(32) NOT NULL, 
	expires_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE mirrored (
	run_id VARCHAR NOT NULL, 
	path VARCHAR NOT NULL, 
	train_step BIGINT NOT NULL, 
	state VARCHAR NOT NULL, 
	url VARCHAR NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (run_id, path), 
	FOREIGN KEY(run_id) REFERENCES run (run_id) ON DELETE CASCADE
);
CREATE VIEW mirror_lag AS
        SELECT run.run_id, run.mirror_url AS url, max(here.train_step) AS newest, (
                SELECT max(sent.train_step)
                FROM mirrored AS sent LEFT JOIN checkpoint AS anew
                    ON anew.run_id = sent.run_id AND anew.path = sent.path
                    AND anew.removed IS NULL AND anew.created_at > sent.at
                WHERE sent.run_id = run.run_id AND sent.url = run.mirror_url
                AND sent.state = 'mirrored' AND anew.path IS NULL
            ) AS mirrored,
            min(CASE WHEN NOT EXISTS (
                SELECT 1 FROM mirrored AS sent
                WHERE sent.run_id = run.run_id AND sent.url = run.mirror_url
                AND sent.state = 'mirrored'
                AND sent.train_step >= here.train_step AND sent.at >= here.created_at
            ) THEN here.created_at END) AS behind_since
        FROM run LEFT JOIN checkpoint AS here ON here.run_id = run.run_id
            AND here.removed IS NULL AND here.path LIKE 'checkpoints/%'
        WHERE run.mirror_url IS NOT NULL
        GROUP BY run.run_id, run.mirror_url;
CREATE INDEX attempt_by_bill_due_at ON attempt (bill_due_at);
INSERT INTO hpcflow_version VALUES ('0008')
