CREATE TABLE w1 (id int PRIMARY KEY, a text);
