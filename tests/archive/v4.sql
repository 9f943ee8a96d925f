BEGIN TRANSACTION;
CREATE TABLE avo_archive (
	version INTEGER NOT NULL, 
	score_rule INTEGER NOT NULL, 
	created_by VARCHAR(64) NOT NULL, 
	created_at DATETIME NOT NULL
);
INSERT INTO "avo_archive" VALUES(4,2,'avo','2026-11-29 17:21:13.816211');
CREATE TABLE candidates (
	run_id INTEGER NOT NULL, 
	k INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	text_sha VARCHAR(64) NOT NULL, 
	agent VARCHAR(200) NOT NULL, 
	rationale TEXT DEFAULT '' NOT NULL, 
	proposed_at DATETIME NOT NULL, 
	evaluation_id INTEGER, prompts VARCHAR(64) DEFAULT '' NOT NULL, 
	PRIMARY KEY (run_id, k), 
	FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	FOREIGN KEY(text_sha) REFERENCES texts (sha256), 
	FOREIGN KEY(evaluation_id) REFERENCES evaluations (id)
);
INSERT INTO "candidates" VALUES(1,0,'aaaaaaaaaaaaaaaa','5cf096219b471e1677c2c885d3808d665f7ffb8ecc7cf31b119f3c8262b13646','seed','','2026-11-29 17:21:13.875145',1,'');
INSERT INTO "candidates" VALUES(1,1,'bbbbbbbbbbbbbbbb','367c2ca9073e94e5617356fbcd72e194343474de397f928000697d4e0fc761e8','walk','wider','2026-11-29 17:21:13.906004',2,'abc');
INSERT INTO "candidates" VALUES(1,2,'cccccccccccccccc','4ae835780d9e44578d8e076402a0193ae7f963c248486b75a62e92cd91fdfc08','walk','','2026-11-29 17:21:13.933330',3,'');
INSERT INTO "candidates" VALUES(1,3,'dddddddddddddddd','1e6036a07ef75a0afa0d7a3723923ccdf6b9a64df2950557fa1b6d6b5a9d17c9','walk','','2026-11-29 17:21:13.945680',NULL,'');
CREATE TABLE documents (
	evaluation_id INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (evaluation_id), 
	FOREIGN KEY(evaluation_id) REFERENCES evaluations (id)
);
INSERT INTO "documents" VALUES(1,'{"status":"ok","mode":"predicted","unit":"TFLOP/s","gates":[{"gate":"parse","passed":true,"message":"","evidence":{},"seconds":0.0},{"gate":"compile","passed":true,"message":"","evidence":{"registers":64},"seconds":0.0}],"workloads":[{"workload":"m=1","work":1000000000000.0,"floor_s":0.1,"bottleneck":"matrix","predicted_s":1.0,"measured_s":null,"limiter":"","detail":{}}],"environment":{},"message":""}');
INSERT INTO "documents" VALUES(2,'{"status":"ok","mode":"predicted","unit":"TFLOP/s","gates":[{"gate":"parse","passed":true,"message":"","evidence":{},"seconds":0.0},{"gate":"compile","passed":true,"message":"","evidence":{"registers":64},"seconds":0.0}],"workloads":[{"workload":"m=1","work":1000000000000.0,"floor_s":0.1,"bottleneck":"matrix","predicted_s":0.5,"measured_s":null,"limiter":"","detail":{}}],"environment":{},"message":""}');
INSERT INTO "documents" VALUES(3,'{"status":"incorrect","mode":"predicted","unit":"TFLOP/s","gates":[{"gate":"correctness","passed":false,"message":"128 of 64 rows differ","evidence":{"worst":"inf"},"seconds":0.0}],"workloads":[],"environment":{},"message":"128 of 64 rows differ"}');
CREATE TABLE evaluations (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	judge VARCHAR(64) NOT NULL, 
	source_sha VARCHAR(64), 
	wall_s FLOAT DEFAULT '0' NOT NULL, 
	judged_at DATETIME NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	mode VARCHAR(16) NOT NULL, 
	failed_gate VARCHAR(32), 
	message TEXT NOT NULL, 
	predicted FLOAT, 
	measured FLOAT, 
	headroom FLOAT, times TEXT, 
	PRIMARY KEY (id), 
	CONSTRAINT uq_evaluation UNIQUE (digest, judge), 
	FOREIGN KEY(source_sha) REFERENCES texts (sha256)
);
INSERT INTO "evaluations" VALUES(1,'aaaaaaaaaaaaaaaa','judge','726d9524908ad1e427f1d64393ef3086a8cadf7ef764f1b8d8aebde459266ca0',2.0,'2026-11-29 17:21:13.889884','ok','predicted',NULL,'',1.0,NULL,1.00000000000000017759e+01,'["predicted","a8de8aa13b0788a7",1.0]');
INSERT INTO "evaluations" VALUES(2,'bbbbbbbbbbbbbbbb','judge','726d9524908ad1e427f1d64393ef3086a8cadf7ef764f1b8d8aebde459266ca0',0.0,'2026-11-29 17:21:13.922906','ok','predicted',NULL,'',2.0,NULL,4.99999999999999911182e+00,'["predicted","a8de8aa13b0788a7",0.5]');
INSERT INTO "evaluations" VALUES(3,'cccccccccccccccc','judge',NULL,0.0,'2026-11-29 17:21:13.934752','incorrect','predicted','correctness','128 of 64 rows differ',0.0,NULL,NULL,NULL);
CREATE TABLE hypotheses (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	nominated_k INTEGER NOT NULL, 
	k INTEGER, 
	claim TEXT NOT NULL, 
	bottleneck VARCHAR(64) DEFAULT '' NOT NULL, 
	expected_gain FLOAT, 
	detail TEXT DEFAULT '{}' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "hypotheses" VALUES(1,1,1,1,'wider tile','memory',1.2,'{}');
CREATE TABLE journal (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	k INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	model VARCHAR(200) NOT NULL, 
	request_sha VARCHAR(64) NOT NULL, 
	reply_sha VARCHAR(64), 
	outcome VARCHAR(32), 
	ledger_id INTEGER NOT NULL, 
	sent_at DATETIME NOT NULL, 
	replied_at DATETIME, 
	PRIMARY KEY (id), 
	CONSTRAINT uq_journal UNIQUE (run_id, k, seq), 
	FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	FOREIGN KEY(request_sha) REFERENCES texts (sha256), 
	FOREIGN KEY(reply_sha) REFERENCES texts (sha256), 
	FOREIGN KEY(ledger_id) REFERENCES ledger (id)
);
INSERT INTO "journal" VALUES(1,1,3,0,'m','1f58b9145b24d108d7ac38887338b3ea3229833b9c1e418250343f907bfd1047','5782b18687e6cf8a482fc32d2db5b196d8821c458a0c069c6acf3953446e7bb5','ok',5,'2026-11-29 17:21:13.947935','2026-11-29 17:21:13.961796');
CREATE TABLE ledger (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	k INTEGER, 
	stage VARCHAR(32) NOT NULL, 
	model VARCHAR(200) DEFAULT '' NOT NULL, 
	usd FLOAT, 
	tokens_in INTEGER DEFAULT '0' NOT NULL, 
	tokens_out INTEGER DEFAULT '0' NOT NULL, 
	tokens_cached INTEGER DEFAULT '0' NOT NULL, 
	device_s FLOAT DEFAULT '0' NOT NULL, 
	wall_s FLOAT DEFAULT '0' NOT NULL, 
	settled BOOLEAN DEFAULT true NOT NULL, 
	note TEXT DEFAULT '' NOT NULL, 
	booked_at DATETIME NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "ledger" VALUES(1,1,0,'evaluate','',0.0,0,0,0,0.0,2.0,1,'','2026-11-29 17:21:13.891705');
INSERT INTO "ledger" VALUES(2,1,1,'propose','',0.1,10,0,0,0.0,0.0,1,'','2026-11-29 17:21:13.907279');
INSERT INTO "ledger" VALUES(3,1,1,'evaluate','',0.0,0,0,0,0.0,0.0,1,'','2026-11-29 17:21:13.923685');
INSERT INTO "ledger" VALUES(4,1,2,'evaluate','',0.0,0,0,0,0.0,0.0,1,'','2026-11-29 17:21:13.944418');
INSERT INTO "ledger" VALUES(5,1,3,'propose','m',0.2,0,0,0,0.0,0.0,1,'','2026-11-29 17:21:13.946531');
CREATE TABLE notes (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	k INTEGER NOT NULL, 
	target VARCHAR(200) NOT NULL, 
	topic VARCHAR(200) DEFAULT '' NOT NULL, 
	body TEXT NOT NULL, 
	written_at DATETIME NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "notes" VALUES(1,1,3,'attention','topic','a note','2026-11-29 17:21:13.963345');
CREATE TABLE parents (
	run_id INTEGER NOT NULL, 
	k INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	parent_k INTEGER NOT NULL, 
	PRIMARY KEY (run_id, k, position), 
	FOREIGN KEY(run_id, k) REFERENCES candidates (run_id, k) ON DELETE CASCADE, 
	FOREIGN KEY(run_id, parent_k) REFERENCES candidates (run_id, k)
);
INSERT INTO "parents" VALUES(1,1,0,0);
INSERT INTO "parents" VALUES(1,2,0,1);
INSERT INTO "parents" VALUES(1,2,1,0);
INSERT INTO "parents" VALUES(1,3,0,1);
CREATE TABLE reviews (id INTEGER NOT NULL, evaluation_id INTEGER NOT NULL, by VARCHAR(60) NOT NULL, reason TEXT NOT NULL, status VARCHAR(32) NOT NULL, document TEXT NOT NULL, decided_at DATETIME NOT NULL, undone_at DATETIME, PRIMARY KEY (id), FOREIGN KEY(evaluation_id) REFERENCES evaluations (id));
CREATE TABLE runs (
	id INTEGER NOT NULL, 
	target VARCHAR(200) NOT NULL, 
	hardware VARCHAR(64) NOT NULL, 
	agent VARCHAR(200) NOT NULL, 
	seed INTEGER NOT NULL, 
	jobs INTEGER NOT NULL, 
	judge VARCHAR(64) NOT NULL, 
	config TEXT NOT NULL, 
	versions TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	ended VARCHAR(32), 
	message TEXT DEFAULT '' NOT NULL, 
	holder TEXT, 
	token VARCHAR(32), 
	beat INTEGER DEFAULT '0' NOT NULL, 
	beat_at DATETIME, 
	PRIMARY KEY (id)
);
INSERT INTO "runs" VALUES(1,'attention','b200','walk',3,2,'judge','{"steps": 3}','{"torch": "2.9"}','2026-11-29 17:21:13.835092','ended','',NULL,NULL,12,'2026-11-29 17:21:13.976572');
CREATE TABLE sessions (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	started_at DATETIME NOT NULL, 
	wall_s FLOAT DEFAULT '0' NOT NULL, 
	versions TEXT NOT NULL, 
	ended VARCHAR(32), 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "sessions" VALUES(1,1,'2026-11-29 17:21:13.861200',1.14076775000285124406e-01,'{}','ended');
CREATE TABLE texts (
	sha256 VARCHAR(64) NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (sha256)
);
INSERT INTO "texts" VALUES('5cf096219b471e1677c2c885d3808d665f7ffb8ecc7cf31b119f3c8262b13646',X'789CCB4E2DCA4BCD5148E40200117B030D');
INSERT INTO "texts" VALUES('726d9524908ad1e427f1d64393ef3086a8cadf7ef764f1b8d8aebde459266ca0',X'789C535648CDCD2C29494DE102001136033A');
INSERT INTO "texts" VALUES('367c2ca9073e94e5617356fbcd72e194343474de397f928000697d4e0fc761e8',X'789CCB4E2DCA4BCD5148E20200117D030E');
INSERT INTO "texts" VALUES('4ae835780d9e44578d8e076402a0193ae7f963c248486b75a62e92cd91fdfc08',X'789CCB4E2DCA4BCD5148E60200117F030F');
INSERT INTO "texts" VALUES('1e6036a07ef75a0afa0d7a3723923ccdf6b9a64df2950557fa1b6d6b5a9d17c9',X'789CCB4E2DCA4BCD5148E1020011810310');
INSERT INTO "texts" VALUES('1f58b9145b24d108d7ac38887338b3ea3229833b9c1e418250343f907bfd1047',X'789C2B4A2D2C4D2D2E01000C15030A');
INSERT INTO "texts" VALUES('5782b18687e6cf8a482fc32d2db5b196d8821c458a0c069c6acf3953446e7bb5',X'789C2B4A2DC8A904000674022D');
CREATE INDEX ix_sessions_run_id ON sessions (run_id);
CREATE INDEX ix_evaluations_predicted ON evaluations (judge, predicted);
CREATE INDEX ix_evaluations_measured ON evaluations (judge, measured);
CREATE INDEX ix_hypotheses_run ON hypotheses (run_id, k);
CREATE INDEX ix_ledger_run ON ledger (run_id, k);
CREATE INDEX ix_notes_run ON notes (run_id, k);
CREATE INDEX ix_notes_target ON notes (target);
CREATE INDEX ix_candidates_digest ON candidates (digest, run_id);
CREATE INDEX ix_candidates_run_digest ON candidates (run_id, digest, k);
CREATE INDEX ix_candidates_evaluation ON candidates (evaluation_id, run_id);
CREATE INDEX ix_parents_parent ON parents (run_id, parent_k);
CREATE INDEX ix_reviews_evaluation ON reviews (evaluation_id);
COMMIT;
